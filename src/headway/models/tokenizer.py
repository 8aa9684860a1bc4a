"""Text to token ids and back, exactly as the model's own tokenizer does it.

Control tokens (`<|im_end|>` and the like) are found only by `encode_template`, in text that the chat template wrote:
see `models.encoders` for why ordinary text cannot become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headway.models.encoders import BLANK, make_encoders
from headway.models.tokenizer_spec import TokenizerSpec

_SURROGATE = re.compile("[\ud800-\udfff]")

# Ordinary texts, whose way to ids and back shows whether the tokenizer was put together as it is meant to be. None
# begins with a blank: good tokenizers lose that one.
_PROBES = (
    "Hello, world! It's 12345 o'clock.",
    "Two  blanks,\ttab\nnew line\n\n    indented = [1, 2]",
    "na\u00efve caf\u00e9 \u65e5\u672c\u8a9e \u0440\u0443\u0441\u0441\u043a\u0438\u0439 \U0001f642",
)


class Tokenizer:
    """A model's tokenizer. Safe to use from several threads: nothing changes after it is built."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self._encoders = make_encoders(spec)
        self.bos_id, self.eos_ids, self.vocab_size = spec.bos_id, spec.eos_ids, len(spec.tokens)
        self._control = {spec.tokens[i]: i for i in spec.control_ids}
        # Longest first: of two control tokens that begin at one place, the longer is meant.
        names = sorted(self._control, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None
        self._byte_of = {char: byte for byte, char in enumerate(byte_alphabet())}
        self._plain_ids = spec.control_ids | spec.user_defined_ids
        begins_with = self.token_text(letter[0]) if (letter := self._encoders.first("a")) else ""
        self._adds_blank = spec.spelling == "sentencepiece" and begins_with.startswith(BLANK)

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
        eos_id = self._spec.eos_id if self._spec.eos_id is not None else min(self.eos_ids, default=None)
        return "" if eos_id is None else self._spec.tokens[eos_id]

    def encode_text(self, text: str) -> list[int]:
        """Ids of a user's text: no BOS, and no control token whatever the text says."""
        return self._encoders.first(_storable(text))

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
                ids += self._encode_part(part.replace(guard, "") if guard else part, ids)
        return self._with_bos(ids)

    def _encode_part(self, text: str, before: list[int]) -> list[int]:
        """Ids of a piece of a template between control tokens; `before` are the ids of all that stands before it."""
        if not before:
            return self._encoders.first(_storable(text))
        encode = self._encoders.after_bos if before == [self.bos_id] else self._encoders.later
        return encode(_storable(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids, control tokens included; bytes that are not UTF-8 become U+FFFD.

        The blank that `encode_text` puts before a text, in models that want one, is taken off again.
        """
        ids = list(ids)
        pieces = [self.token_bytes(token_id) for token_id in ids]
        start = 1 if ids[:1] == [self.bos_id] else 0
        if self._adds_blank and not any(map(self.is_special, ids[start : start + 1])):
            pieces[start : start + 1] = [piece.removeprefix(b" ") for piece in pieces[start : start + 1]]
        return b"".join(pieces).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that a token stands for; a control token's are those of its name."""
        text = self.token_text(token_id)
        if token_id in self._plain_ids:
            return text.encode()
        if token_id in self._spec.byte_ids:
            return bytes([int(text[3:5], 16)])
        if self._spec.spelling == "sentencepiece":
            return text.replace(BLANK, " ").encode()
        try:
            return bytes([self._byte_of[char] for char in text])
        except KeyError:
            return text.encode()  # an unused token that is not written in the byte alphabet

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it ("Ġthe" or "▁the" for " the")."""
        if not 0 <= token_id < self.vocab_size:
            raise IndexError(f"token id {token_id} is outside the vocabulary of {self.vocab_size}")
        return self._spec.tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, which is never part of an answer's text."""
        return token_id in self._spec.control_ids

    def problem(self) -> str | None:
        """What is wrong when ordinary texts do not come back from their ids; None when all is well.

        A file whose metadata is damaged, or of two minds about how its tokens are spelled, is caught here.
        """
        for text in _PROBES:
            if (found := self.decode(self.encode_text(text))) != text:
                where = self._spec.origin
                return f"{where}: the tokenizer turns {text[:40]!r} into {found[:40]!r}; answers may be garbled"
        return None

    def _with_bos(self, ids: list[int]) -> list[int]:
        if not self._spec.add_bos or self.bos_id is None or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids]


def _storable(text: str) -> str:
    """Text without lone surrogates, which have no UTF-8 form: each becomes U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def byte_alphabet() -> Sequence[str]:
    """GPT-2's printable stand-in for each byte: itself where it is printable Latin-1, else the next from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]
