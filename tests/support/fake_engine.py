"""An engine that says what a test tells it to, token by token, on the test's own event loop."""

import asyncio
from itertools import count
from types import SimpleNamespace

from headway.core import (
    Admitted,
    Arrived,
    Finished,
    FinishReason,
    Logprobs,
    Request,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
)
from headway.engine.outputs import Delta, EngineStats, Usage
from headway.errors import InvalidRequest, Overloaded, PromptTooLong
from headway.models import Tokenizer
from tests.support.tiny_model import tiny_tokenizer_spec


class FakeStream:
    """Gives its choices' characters in turn, one delta each, as far as the engine lets tokens through."""

    def __init__(self, engine, request):
        self.engine, self.request = engine, request
        self.usage = None
        self.prompt_logprobs = ()
        self.is_aborted = False
        self.wake = asyncio.Event()

    def abort(self):
        self.is_aborted = True
        self.wake.set()

    async def __aiter__(self):
        request, engine = self.request, self.engine
        if request.params.prompt_logprobs is not None:
            self.prompt_logprobs = tuple(engine.scored(token) for token in request.prompt_ids[1:])
        left = {choice: list(engine.text_of(request, choice)) for choice in range(request.params.n)}
        num_tokens = dict.fromkeys(left, 0)
        try:
            while left:
                for choice in list(left):
                    await self._permission()
                    engine.raise_planned(request, sum(num_tokens.values()))
                    delta = self._next(choice, left[choice], num_tokens)
                    if delta.finish_reason is not None:
                        del left[choice]
                        engine.tell(SequenceFinished(request.id, request.id, choice, delta.finish_reason, engine.now()))
                    yield delta
            self.usage = Usage(
                num_prompt=request.num_prompt, num_output=sum(num_tokens.values()), num_cached=engine.num_cached
            )
        finally:
            engine.end(self, FinishReason.ABORT if self.is_aborted else FinishReason.LENGTH, sum(num_tokens.values()))

    def _next(self, choice, left, num_tokens):
        if self.is_aborted:
            return Delta(choice, finish_reason=FinishReason.ABORT)
        if not left:
            return Delta(choice, finish_reason=FinishReason.STOP)
        text = left.pop(0)
        token_ids = self.engine.ids_of(text)[: self.request.max_output - num_tokens[choice]]
        for token_id in token_ids:
            name, place = self.request.id, num_tokens[choice]
            self.engine.tell(TokenEmitted(name, name, choice, place, token_id, self.engine.now()))
            num_tokens[choice] += 1
        wants_logprobs = self.request.params.logprobs is not None
        logprobs = [self.engine.scored(token) for token in token_ids] if wants_logprobs else []
        reason = FinishReason.LENGTH if num_tokens[choice] >= self.request.max_output else None
        if reason is None and not left and self.engine.ends_with_text:
            reason = FinishReason.STOP
        return Delta(choice, text, token_ids, logprobs, reason)

    async def _permission(self):
        while self.engine.permits == 0 and not self.is_aborted:
            self.wake.clear()
            await self.wake.wait()
        if self.engine.permits is not None and not self.is_aborted:
            self.engine.permits -= 1
        await asyncio.sleep(0)


class FakeEngine:
    """`answer` is what every choice says, one character (or item of a list) at a time.

    `permits` tokens may still flow; None: all of them. `faults` maps a number of tokens to what is raised when a
    stream has given that many; `refusal` is raised by `submit`.
    """

    def __init__(self, answer="Hello, world", *, max_model_len=256):
        self.model_name = "fake"
        self.tokenizer = Tokenizer(tiny_tokenizer_spec())
        self.listeners = []
        self._serial = count()
        self.renew(answer, max_model_len=max_model_len)

    def renew(self, answer="Hello, world", *, max_model_len=256):
        """As if it were new, for the next test on the same application; who listens goes on listening."""
        for name in self.__dict__.keys() - {"model_name", "tokenizer", "listeners", "_serial"}:
            delattr(self, name)
        self.answer, self.max_model_len = answer, max_model_len
        self.permits = None
        self.faults = {}
        self.refusal = None
        self.num_cached = 0
        self.num_top = 3
        self.ends_with_text = True
        self.is_ready = self.is_alive = True
        self.honours_priority = False
        self.honours_tier = True
        self.submitted, self.streams, self.ended = [], {}, []
        self.calls = []
        self.turned_away = []
        self.control = SimpleNamespace(now_s=0.0, admission=SimpleNamespace(on_refusal=self.turned_away.append))

    def now(self):
        return float(next(self._serial))

    def allow(self, num_tokens):
        """Let that many more tokens through; None: all."""
        self.permits = None if num_tokens is None else (self.permits or 0) + num_tokens
        for stream in self.streams.values():
            stream.wake.set()

    def text_of(self, request, choice):
        """Choices differ in length, so that they end at different times."""
        return self.answer[: len(self.answer) - choice] if request.params.n > 1 else self.answer

    def ids_of(self, text):
        """Token ids of one piece of the answer."""
        return self.tokenizer.encode_text(text)

    def scored(self, token_id):
        others = [(token_id + step) % self.tokenizer.vocab_size for step in range(self.num_top)]
        return Logprobs(-0.5, 1, tuple((other, -0.5 - step) for step, other in enumerate(others)))

    def raise_planned(self, request, num_tokens):
        if num_tokens in self.faults:
            raise self.faults[num_tokens]

    def tell(self, *events):
        for listener in self.listeners:
            listener(list(events))

    def end(self, stream, reason, num_output):
        if self.streams.pop(stream.request.id, None) is not None:
            self.ended.append((stream.request.id, reason))
            self.tell(Finished(stream.request, reason, num_output, self.num_cached, self.now()))

    # ---- what the server uses -------------------------------------------------------------------------------------

    def start(self):
        self.calls.append("start")

    def encode(self, text):
        return self.tokenizer.encode_text(text)

    def chat_ids(self, messages, /, **variables):
        if variables.get("fail"):
            raise InvalidRequest("the chat template refuses: no", param="messages")
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return self.tokenizer.encode_text(text + "<assistant>")

    def submit(self, prompt_ids, params, *, request_id=None, **extras):
        if self.refusal is not None:
            raise self.refusal
        if not self.is_ready:
            raise Overloaded("this server takes no new requests", retry_after_s=5.0, cause="draining")
        if any(not 0 <= token < self.tokenizer.vocab_size for token in prompt_ids):
            raise InvalidRequest("prompt has a token id outside the vocabulary", param="prompt")
        for name, ids in (
            ("stop_token_ids", params.stop_token_ids),
            ("allowed_token_ids", params.allowed_token_ids or ()),
            ("logit_bias", [token for token, _ in params.logit_bias]),
        ):
            if any(not 0 <= token < self.tokenizer.vocab_size for token in ids):
                raise InvalidRequest(f"{name} has a token id outside the vocabulary", param=name)
        wanted = params.max_tokens or 1
        if len(prompt_ids) + wanted > self.max_model_len:
            raise PromptTooLong(len(prompt_ids), wanted, self.max_model_len, param="prompt")
        assert request_id not in self.streams, "the server gave two requests one id"
        request = Request(
            id=request_id,
            prompt_ids=tuple(prompt_ids),
            max_output=params.max_tokens or self.max_model_len - len(prompt_ids),
            arrival_s=self.now(),
            params=params,
            **extras,
        )
        self.tell(Arrived(request, request.arrival_s))
        self.tell(Admitted(request.id, request.id, self.num_cached, is_first=True, at_s=self.now()))
        self.tell(StepRecord(0, self.now(), grants={request.id: request.num_prompt}))
        self.submitted.append(request)
        stream = self.streams[request.id] = FakeStream(self, request)
        return stream

    def stats(self):
        return EngineStats(num_running=len(self.streams), num_blocks=10, num_free_blocks=10 - len(self.streams))

    def add_listener(self, on_events, /):
        self.listeners.append(on_events)

    def begin_drain(self):
        self.calls.append("begin_drain")
        self.is_ready = False

    async def drained(self, timeout_s):
        self.calls.append("drained")
        return not self.streams

    async def close(self):
        self.calls.append("close")
        for stream in list(self.streams.values()):
            stream.abort()
