"""The systems that are compared: how each is started for a piece of work, and how it is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from benchmarks.peers import environments
from benchmarks.peers.process import Running, free_port, server
from benchmarks.peers.requantise import requantise
from benchmarks.peers.work import Work, calls
from headway.bench import HttpSettings, HttpTarget, Runner
from headway.clock import WallClock
from headway.models import Tokenizer, open_model, resolve_model
from headway.report import RunRecord

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One request as its client saw it; seconds since the run's start."""

    kind: str
    num_prompt: int
    sent_s: float
    token_s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One system's run of one piece of work: what its client saw, and what the process took and tells."""

    answers: Sequence[Answer]
    duration_s: float
    start_s: float
    resident_bytes: int
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What all systems share: the model, its tokenizer for the client, and the number of cores."""

    model: Path
    tokenizer: Tokenizer
    num_cores: int

    @classmethod
    def of(cls, num_cores: int) -> Host:
        """With the default model, which is fetched once."""
        return cls(model=resolve_model(None), tokenizer=open_model(None).tokenizer, num_cores=num_cores)


class System(Protocol):
    """Something that can be measured."""

    def measure(self, host: Host, work: Work, run_id: str) -> Measured:
        """Start it anew, warm it up, run the work, end it. Prompts depend on `run_id`."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """A system that is asked over HTTP; `start` is how it is started with room for the work."""

    start: Callable[[Host, Work], AbstractContextManager[Running]]

    def measure(self, host: Host, work: Work, run_id: str) -> Measured:
        """One run against a server of its own. Raises `RuntimeError` where an answer is not what was asked for."""
        with self.start(host, work) as running:
            record = asyncio.run(_ask(running.url, host, work, run_id))
            resident_bytes = running.resident_bytes
        if broken := [one for one in record.requests if not one.is_ok and one.traffic_class != "short"]:
            raise RuntimeError(f"{len(broken)} requests failed, the first with: {broken[0].reason}")
        answers = [
            Answer(
                kind=one.traffic_class,
                num_prompt=one.num_prompt,
                sent_s=one.intended_s if one.sent_s is None else one.sent_s,
                token_s=one.token_s,
            )
            for one in record.requests
        ]
        return Measured(
            answers=answers,
            duration_s=record.duration_s,
            start_s=running.start_s,
            resident_bytes=resident_bytes,
            counters=record.server,
        )


async def _ask(url: str, host: Host, work: Work, run_id: str) -> RunRecord:
    clock = WallClock()
    target = HttpTarget(HttpSettings(url=url, fixed_length=True, headers={"connection": "close"}), clock)
    try:
        return await Runner(target, calls(host.tokenizer, run_id), clock, work.plan()).run()
    finally:
        await target.close()


def headway(*flags: str) -> Served:
    """`headway serve` with default settings and `flags`."""

    @contextlib.contextmanager
    def start(host: Host, work: Work) -> Iterator[Running]:  # noqa: ARG001  # the defaults have room for all of it
        port = free_port()
        words = ["serve", "--port", str(port), "--threads", str(host.num_cores), "--log-level", "warning", *flags]
        with server([sys.executable, "-m", "headway", *words], port, "/ready") as running:
            yield running

    return Served(start)


def llama_cpp(weights: str) -> Served:
    """llama.cpp's server, a slot for each request in flight, the model requantised to one of its own formats."""

    @contextlib.contextmanager
    def start(host: Host, work: Work) -> Iterator[Running]:
        name = f"{host.model.name.split('.')[0]}.{weights}.gguf"
        port = free_port()
        wanted = {
            "model": str(requantise(host.model, environments.folder() / "models" / name, weights)),
            "threads": host.num_cores,
            "slots": work.at_once,
            "context": work.at_once * work.max_len,
            "port": port,
        }
        command = [str(environments.python("llamacpp")), str(HERE / "llamacpp_child.py"), json.dumps(wanted)]
        with server(command, port, "/health") as running:
            yield running

    return Served(start)


@dataclass(frozen=True, slots=True)
class OpenVino:
    """OpenVINO GenAI's continuous batching in a process of its own, without HTTP; `budget` is its tokens per step."""

    budget: int

    def measure(self, host: Host, work: Work, run_id: str) -> Measured:
        """One run in a fresh process. Raises `CalledProcessError`."""
        made = calls(host.tokenizer, run_id)
        warmups = [replace(work.items[0], seed=10_000 + k, at_s=0.0, cancel_s=None) for k in range(work.num_warmups)]
        requests = [
            {
                "prompt": made.call(item).prompt,
                "num_output": min(item.num_output, 64) if k < work.num_warmups else item.num_output,
                "at_s": item.at_s,
                "cancel_s": item.cancel_s,
                "is_warmup": k < work.num_warmups,
            }
            for k, item in enumerate([*warmups, *work.items])
        ]
        wanted = {
            "model": str(host.model),
            "threads": host.num_cores,
            "budget": self.budget,
            "at_once": work.at_once,
        }
        command = [str(environments.python("openvino")), str(HERE / "openvino_child.py"), json.dumps(wanted)]
        done = subprocess.run(  # noqa: S603 - ours
            command, input=json.dumps(requests).encode(), stdout=subprocess.PIPE, check=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        answers = [
            Answer(kind=item.traffic_class, **seen) for item, seen in zip(work.items, found["requests"], strict=True)
        ]
        return Measured(
            answers=answers,
            duration_s=found["duration_s"],
            start_s=found["start_s"],
            resident_bytes=found["resident_bytes"],
        )


SYSTEMS: dict[str, System] = {
    "headway": headway(),
    "headway itl 60": headway("--itl-target-ms", "60"),
    "headway itl 150": headway("--itl-target-ms", "150"),
    "headway itl 300": headway("--itl-target-ms", "300"),
    "llama.cpp Q8_0": llama_cpp("Q8_0"),
    "llama.cpp Q4_0": llama_cpp("Q4_0"),
    "openvino": OpenVino(256),
    "openvino 64": OpenVino(64),
}
