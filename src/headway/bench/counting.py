"""Tokens, not chunks: when each token of an answer arrived, as exactly as the target lets us know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.bench.target import Chunk, Closing

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """An answer's tokens. `source` is that of `RequestRecord.count_source`; `token_s` the arrival of each.

    `num_reencoded` is what the tokenizer makes of the text, where there is one: it may differ from the truth.
    """

    num_output: int
    source: str
    token_s: list[float]
    num_reencoded: int | None = None


def count_tokens(chunks: Sequence[Chunk], closing: Closing | None, tokenize: CountTokens | None = None) -> Count:
    """Count an answer: by the server's usage, else by listed tokens, else by re-encoding, else one per chunk.

    An answer that broke off has no `closing`, and so no usage.
    """
    listed = [chunk.num_tokens for chunk in chunks]
    are_listed = all(num is not None for num in listed)
    num_reencoded = None
    if tokenize is not None and not are_listed:
        num_reencoded = tokenize("".join(chunk.text for chunk in chunks))
    if closing is not None and closing.num_output is not None:
        num_output, source = closing.num_output, "usage"
    elif are_listed:
        num_output, source = sum(num or 0 for num in listed), "ids"
    elif num_reencoded is not None:
        num_output, source = num_reencoded, "retokenized"
    else:
        num_output, source = len(chunks), "chunks"
    return Count(num_output=num_output, source=source, token_s=_times(chunks, num_output), num_reencoded=num_reencoded)


def _times(chunks: Sequence[Chunk], num_output: int) -> list[float]:
    """The arrival of each token; empty where there are fewer tokens than chunks, for then nobody can tell."""
    if num_output < len(chunks) or not chunks:
        return []
    shares = _shares(chunks, num_output)
    return [chunk.at_s for chunk, num in zip(chunks, shares, strict=True) for _ in range(num)]


def _shares(chunks: Sequence[Chunk], num_output: int) -> list[int]:
    """Tokens of each chunk. Where they are not listed: by length of text, at least one each.

    Largest remainders, so that the sum is exact.
    """
    listed = [chunk.num_tokens or 0 for chunk in chunks]
    if sum(listed) == num_output:
        return listed
    sizes = [max(1, len(chunk.text)) for chunk in chunks]
    quotas = [num_output * size / sum(sizes) for size in sizes]
    shares = [max(1, int(quota)) for quota in quotas]
    while (missing := num_output - sum(shares)) > 0:
        by_remainder = sorted(range(len(chunks)), key=lambda at: shares[at] - quotas[at])
        for at in by_remainder[:missing]:
            shares[at] += 1
    while sum(shares) > num_output:  # many small chunks got their one token: the largest give
        shares[max(range(len(chunks)), key=lambda at: shares[at] - quotas[at] if shares[at] > 1 else -1.0)] -= 1
    return shares
