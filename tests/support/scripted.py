"""Targets and servers whose truth is known, because a test wrote it down."""

import asyncio
import json
from dataclasses import replace

import httpx

from headway.bench import Call, Chunk, Closing, Opened
from headway.workload import WorkItem


def item(number=0, **fields):
    defaults = {"id": f"r{number}", "num_prompt": 4, "num_output": 3, "max_output": 3, "at_s": 0.0, "seed": number}
    return WorkItem(**(defaults | fields))


class PlainCalls:
    """Prompts nobody reads."""

    def call(self, item):
        return Call(id=item.id, prompt="x", num_prompt=item.num_prompt, num_output=item.num_output, seed=item.seed)


class ScriptedTarget:
    """Answers as `script(call, number)` says: steps of (seconds to wait, piece or exception to raise).

    `number` counts the attempts from 0.
    """

    def __init__(self, clock, script):
        self.clock, self.script = clock, script
        self.calls, self.arrived_s = [], []
        self.in_flight = self.most_in_flight = 0
        self.num_given_up = 0

    async def check(self):
        pass

    async def stream(self, call):
        number = len(self.calls)
        self.calls.append(call)
        self.arrived_s.append(self.clock.now())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            yield Opened(self.clock.now())
            for wait_s, what in self.script(call, number):
                await asyncio.sleep(wait_s)
                yield replace(_raised(what), at_s=self.clock.now())
        except GeneratorExit:
            self.num_given_up += 1
            raise
        finally:
            self.in_flight -= 1

    def describe(self):
        return {"kind": "scripted"}

    async def counters(self):
        return {"num_calls": float(len(self.calls))}

    def steps(self, start_s):
        return []

    async def close(self):
        pass


def _raised(what):
    if isinstance(what, Exception):
        raise what
    return what


def token(text="x"):
    return Chunk(0.0, text, 1)


def end(**told):
    return Closing(at_s=0.0, finish_reason="length", **told)


def steady(num_tokens, *, first_s, gap_s):
    """One token at a time: the first after `first_s`, the others `gap_s` apart."""
    waits = [first_s, *[gap_s] * (num_tokens - 1)]
    return [*((wait_s, token()) for wait_s in waits), (0.0, end(num_output=num_tokens))]


class SlotTarget(ScriptedTarget):
    """A server that works on `num_slots` requests at a time, in order of arrival; each takes as its script says."""

    def __init__(self, clock, script, num_slots):
        super().__init__(clock, script)
        self._slots = asyncio.Semaphore(num_slots)

    async def stream(self, call):
        async with self._slots:
            async for piece in super().stream(call):
                yield piece


# ---- HTTP without a network -----------------------------------------------------------------------------------------


def event(**content):
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def completion(text="", **choice):
    return event(choices=[{"index": 0, "text": text, **choice}])


def chat(content=None, **delta):
    spoken = {} if content is None else {"content": content}
    return event(choices=[{"index": 0, "delta": {**spoken, **delta}}])


def usage(num_prompt, num_output, **more):
    return event(choices=[], usage={"prompt_tokens": num_prompt, "completion_tokens": num_output, **more})


FINISH = event(choices=[{"index": 0, "text": "", "delta": {}, "finish_reason": "length"}])
DONE = b"data: [DONE]\n\n"


class _Body(httpx.AsyncByteStream):
    def __init__(self, steps):
        self._steps = steps

    async def __aiter__(self):
        for wait_s, what in self._steps:
            await asyncio.sleep(wait_s)
            if isinstance(what, Exception):
                raise what
            yield what


class ScriptedTransport(httpx.AsyncBaseTransport):
    """`script(request body, number)` gives (status, headers, [(seconds to wait, bytes or exception)])."""

    def __init__(self, script):
        self.script = script
        self.bodies, self.headers = [], []

    async def handle_async_request(self, request):
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "scripted"}]})
        if request.url.path == "/metrics":
            return httpx.Response(404)
        number = len(self.bodies)
        self.bodies.append(json.loads(await request.aread()))
        self.headers.append(request.headers)
        status, headers, steps = self.script(self.bodies[-1], number)
        return httpx.Response(status, headers={"content-type": "text/event-stream"} | headers, stream=_Body(steps))
