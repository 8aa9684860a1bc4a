"""What every system is asked to do. All systems get the same lengths at the same moments; no prompt is sent twice."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from headway.bench import RunPlan, TextCalls
from headway.models import Tokenizer
from headway.workload import PromptMaker, WorkItem

NUM_PROMPT, NUM_OUTPUT = 152, 64
NUM_WARMUPS = 3
LONG_WORDS = 1500
LONG_AT_S = (8.0, 11.0, 14.0, 17.0)
STREAM_ENDS_S = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Requests, most of them in flight at a time, and the longest of them in tokens."""

    name: str
    items: tuple[WorkItem, ...]
    at_once: int
    max_len: int
    num_warmups: int = NUM_WARMUPS

    def plan(self) -> RunPlan:
        """The client's plan of it."""
        return RunPlan(
            items=lambda: iter(self.items),
            label=self.name,
            num_total=len(self.items),
            is_closed_loop=True,
            num_warmups=self.num_warmups,
            max_concurrency=self.at_once,
            timeout_s=300.0,
        )


def serving(at_once: int, num: int) -> Work:
    """`num` requests of 152 + 64 tokens, `at_once` of them at a time."""
    return Work(
        name=f"serving{at_once}", items=tuple(_items(num, NUM_PROMPT, NUM_OUTPUT)), at_once=at_once, max_len=256
    )


def one_stream() -> Work:
    """Answers of 128 tokens, one after the other."""
    return Work(name="stream", items=tuple(_items(3, NUM_PROMPT, 128)), at_once=1, max_len=512)


def prefill(num_prompt: int, num: int) -> Work:
    """Prompts of one length, one after the other, and a single token of answer."""
    name = f"prefill{num_prompt}"
    return Work(name=name, items=tuple(_items(num, num_prompt, 1)), at_once=1, max_len=num_prompt + 64)


def interference() -> Work:
    """Eight short streams that outlast four long prompts, which come three seconds apart, on slow systems too."""
    short = [
        WorkItem(
            id=f"short-{k}",
            num_prompt=NUM_PROMPT,
            num_output=4000,
            max_output=4000,
            at_s=0.0,
            cancel_s=STREAM_ENDS_S,
            traffic_class="short",
            seed=k,
        )
        for k in range(8)
    ]
    long = [
        WorkItem(
            id=f"long-{k}",
            num_prompt=LONG_WORDS,
            num_output=16,
            max_output=16,
            at_s=at_s,
            traffic_class="long",
            seed=100 + k,
        )
        for k, at_s in enumerate(LONG_AT_S)
    ]
    return Work(name="interference", items=(*short, *long), at_once=12, max_len=4352, num_warmups=0)


def _items(num: int, num_prompt: int, num_output: int) -> Iterator[WorkItem]:
    for k in range(num):
        yield WorkItem(
            id=f"r{k}", num_prompt=num_prompt, num_output=num_output, max_output=num_output, at_s=0.0, seed=k
        )


WORKS = {
    work.name: work
    for work in (
        serving(16, 48),
        serving(32, 64),
        serving(64, 96),
        one_stream(),
        prefill(512, 5),
        prefill(2048, 3),
        interference(),
    )
}


def calls(tokenizer: Tokenizer, run_id: str) -> TextCalls:
    """Prompts of common words, as text, of exact length. Another run has other prompts."""
    return TextCalls(PromptMaker(tokenizer, salt=zlib.crc32(run_id.encode())))
