"""Names for the blocks that prompts start with: equal for equal text, and saying nothing about it."""

from __future__ import annotations

import hashlib

from headway.core import Request

ID_BITS = 44


def prefix_ids(request: Request, block: int, key: bytes) -> list[int]:
    """An id for each whole block of the prompt, which depends on all tokens up to its end and on the cache salt.

    A keyed hash: without the key, a text cannot be looked for by guessing it.
    """
    chain = hashlib.blake2b(request.cache_salt.encode(), key=key, digest_size=8)
    ids = []
    for stop in range(block, request.num_prompt + 1, block):
        tokens = request.prompt_ids[stop - block : stop]
        chain.update(b"".join(token.to_bytes(8, "little") for token in tokens))
        ids.append(int.from_bytes(chain.digest(), "little") & ((1 << ID_BITS) - 1))
    return ids
