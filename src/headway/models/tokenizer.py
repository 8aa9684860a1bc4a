"""Text to token ids and back, exactly as the model's own tokenizer does it.

Control tokens (`<|im_end|>` and the like) are no part of the BPE vocabulary built here: ordinary text cannot become
one, by construction. They are found only by `encode_template`, in text that the chat template wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from headway.errors import BadModelFile
from headway.models.tokenizer_spec import TokenizerSpec

# A rule splits text into pieces that BPE never merges across. The expressions are those that models' makers publish;
# None means GPT-2's, which the library has built in.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS: dict[str, str | None] = {
    "smollm": None,
    "gpt-2": None,
    "default": None,
    "llama-bpe": _LLAMA3,
    "qwen2": _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),
}

_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A byte-level BPE tokenizer. Safe to use from several threads: nothing changes after it is built."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._backend = _backend(spec)
        self.bos_id, self.eos_ids, self.vocab_size = spec.bos_id, spec.eos_ids, len(spec.tokens)
        self._control = {spec.tokens[i]: i for i in spec.control_ids}
        # Longest first: of two control tokens that begin at one place, the longer is meant.
        names = sorted(self._control, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None
        self._byte_of = {char: byte for byte, char in enumerate(byte_alphabet())}

    @property
    def control_texts(self) -> tuple[str, ...]:
        """The texts of all control tokens."""
        return tuple(self._control)

    @property
    def bos_text(self) -> str:
        """What a template calls `bos_token`; empty without one."""
        return "" if self.bos_id is None else self._spec.tokens[self.bos_id]

    @property
    def eos_text(self) -> str:
        """What a template calls `eos_token`; empty without one."""
        return self._spec.tokens[min(self.eos_ids)] if self.eos_ids else ""

    def encode_text(self, text: str) -> list[int]:
        """Ids of a user's text: no BOS, and no control token whatever the text says."""
        ids: list[int] = self._backend.encode(_storable(text), add_special_tokens=False).ids
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a user's whole prompt: `encode_text`, begun by one BOS if the model's file asks for it."""
        return self._with_bos(self.encode_text(text))

    def encode_template(self, text: str, guard: str = "") -> list[int]:
        """Ids of a rendered chat template: control tokens are recognised.

        There is exactly one BOS if the file asks for it, whether or not the template wrote it. The character `guard`,
        if one is given, is removed after the control tokens were found: see `models.chat_prompt`.
        """
        parts = self._split.split(text) if self._split else [text]
        ids: list[int] = []
        for part in parts:
            if part in self._control:
                ids.append(self._control[part])
            elif part:
                ids += self.encode_text(part.replace(guard, "") if guard else part)
        return self._with_bos(ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids, control tokens included; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that a token stands for; a control token's are those of its name."""
        text = self.token_text(token_id)
        if token_id in self._spec.control_ids or token_id in self._spec.user_defined_ids:
            return text.encode()
        try:
            return bytes([self._byte_of[char] for char in text])
        except KeyError:
            return text.encode()  # an unused token that is not written in the byte alphabet

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it, in the byte alphabet ("Ġthe" for " the")."""
        if not 0 <= token_id < self.vocab_size:
            raise IndexError(f"token id {token_id} is outside the vocabulary of {self.vocab_size}")
        return self._spec.tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which is never part of an answer's text."""
        return token_id in self._spec.control_ids

    def _with_bos(self, ids: list[int]) -> list[int]:
        if not self._spec.add_bos or self.bos_id is None or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]


def _storable(text: str) -> str:
    """Text without lone surrogates, which have no UTF-8 form: each becomes U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _backend(spec: TokenizerSpec) -> tokenizers.Tokenizer:
    vocab = {token: i for i, token in enumerate(spec.tokens) if i not in spec.control_ids}
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in spec.merges)]
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=spec.pre == "llama-bpe")
    except Exception as error:  # noqa: BLE001 - the library raises nothing more specific
        raise BadModelFile(f"{spec.origin}: the tokenizer's merges do not fit its tokens: {error}") from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = _pre_tokenizer(spec)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens([AddedToken(spec.tokens[i], normalized=False) for i in sorted(spec.user_defined_ids)])
    return backend


def _pre_tokenizer(spec: TokenizerSpec) -> pre_tokenizers.PreTokenizer:
    if (pre := spec.pre) not in PRE_TOKENIZERS:
        raise BadModelFile(
            f"{spec.origin}: pre-tokenizer {pre!r} is not supported, and another would give wrong tokens; "
            f"supported: {', '.join(PRE_TOKENIZERS)}"
        )
    pattern = PRE_TOKENIZERS[pre]
    steps: list[pre_tokenizers.PreTokenizer] = []
    if pre == "smollm":
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    return pre_tokenizers.Sequence(steps)


def byte_alphabet() -> Sequence[str]:
    """GPT-2's printable stand-in for each byte: itself where it is printable Latin-1, else the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]
