"""What every route works with: the engine, under the names it is served by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Scope

from headway.errors import Forbidden, InvalidRequest, Overloaded, PromptTooLong, UnknownModel
from headway.server.access import caller_of
from headway.server.body import read_json
from headway.server.config import ServerConfig
from headway.server.desk import Desk
from headway.server.faults import TextTooLong
from headway.server.fields import Prompt
from headway.server.job import Job
from headway.server.params import Terms
from headway.server.port import ServedEngine
from headway.server.request_id import request_id, unique
from headway.server.schema import BodyType, parse
from headway.tenancy import House, Tenant

Result = TypeVar("Result")

_SHORT_CHARS = 8192  # texts up to here are tokenized at once; longer ones in a thread, so that streams keep flowing


class Served:
    """One engine, how it is served, and for whom."""

    def __init__(self, engine: ServedEngine, config: ServerConfig, house: House) -> None:
        self.engine, self.config, self.house = engine, config, house
        self.desk = Desk(engine, house)
        self.model_names = config.served_model_names or (engine.model_name,)
        self.created = int(time.time())

    def model(self, name: str | None) -> str:
        """The served name that a request means; the first one where it names none. Raises `UnknownModel`."""
        if not name:
            return self.model_names[0]
        if name not in self.model_names:
            raise UnknownModel(name[:200], self.model_names)
        return name

    def models_of(self, tenant: Tenant) -> tuple[str, ...]:
        """The names that a tenant may use."""
        return tuple(name for name in self.model_names if tenant.allows(name))

    async def read(self, request: Request, kind: type[BodyType]) -> BodyType:
        """The request's body, checked. Raises `InvalidRequest`: `UnknownModel`, or `Forbidden` for another's model."""
        body = parse(kind, await read_json(request, self.config.max_body_bytes))
        if not caller_of(request.scope).tenant.allows(model := self.model(body.model)):
            raise Forbidden(f"this key may not use model {model!r}; `/v1/models` lists those it may", param="model")
        return body

    def require_welcome(self, scope: Scope) -> None:
        """Raise what is known before a body is read: the engine takes no requests, or a limit of the caller is used up.

        Charges nothing.
        """
        self.house.gate.require_room(caller_of(scope).tenant)
        if not self.engine.is_ready:
            raise Overloaded("this server is loading or shutting down; try again or elsewhere", retry_after_s=5.0)

    async def encode(self, prompts: Prompt) -> list[list[int]]:
        """Token ids of every prompt. Raises `InvalidRequest` for an empty one."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        self.bound_texts(texts, "prompt")

        def tokenize() -> list[list[int]]:
            return [self.engine.encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]

        for prompt in prompts:
            if not isinstance(prompt, str) and len(prompt) >= self.engine.max_model_len:
                raise PromptTooLong(len(prompt), 1, self.engine.max_model_len, param="prompt")
        prompt_ids = await self.off_loop(tokenize, sum(map(len, texts)))
        if not all(prompt_ids):
            raise InvalidRequest("prompt is empty; it must have at least one token", param="prompt")
        return prompt_ids

    async def encode_chat(self, messages: list[dict[str, Any]], variables: dict[str, Any]) -> list[int]:
        """Token ids of a conversation under the model's template. Raises `InvalidRequest` where that refuses."""
        texts = [message["content"] for message in messages]
        self.bound_texts(texts, "messages")
        num_chars = sum(map(len, texts)) + 64 * len(texts)
        prompt_ids = await self.off_loop(lambda: self.engine.chat_ids(messages, **variables), num_chars)
        if not prompt_ids:
            raise InvalidRequest("the chat template made an empty prompt of these messages", param="messages")
        return prompt_ids

    def submit(self, scope: Scope, prompts: Sequence[Sequence[int]], terms: Terms, kind: str, param: str) -> Job:
        """Submit all prompts of a call or none, under an id that begins with `kind`.

        A complaint about token ids names `param`, the field that they came from.
        """
        name = unique(kind, request_id(scope))
        try:
            return self.desk.submit(caller_of(scope), prompts, terms, self.model(terms.model), name)
        except InvalidRequest as error:
            error.param = param if error.param in (None, "prompt", "prompt_ids") else error.param
            raise

    def bound_texts(self, texts: Sequence[str], param: str) -> None:
        """Refuse a text that no tokenization can fit into the context, before any time is spent on it."""
        num_chars = max(map(len, texts), default=0)
        # No character has more than four bytes and no token fewer than one, so most texts need no closer look.
        if num_chars > self.engine.max_model_len and num_chars > self._most_chars:
            raise TextTooLong(
                f"{param} has {num_chars} characters; this server's context of {self.engine.max_model_len} tokens "
                f"cannot hold more than {self._most_chars}",
                param=param,
            )

    async def off_loop(self, work: Callable[[], Result], num_chars: int) -> Result:
        """Do `work` here if it is short, else in a thread."""
        return work() if num_chars <= _SHORT_CHARS else await asyncio.to_thread(work)

    @cached_property
    def _most_chars(self) -> int:
        """Characters of a prompt made of the longest token only."""
        tokenizer = self.engine.tokenizer
        longest = max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
        return longest * self.engine.max_model_len
