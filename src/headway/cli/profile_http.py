"""What a server adds to the engine's steps: the same decode, streamed over HTTP."""

from __future__ import annotations

import asyncio
import random
import re
import time
from typing import TYPE_CHECKING, Any

from headway.cli.own_server import own_server
from headway.interruptible import run_interruptible

if TYPE_CHECKING:
    import httpx

NUM_OUTPUT = 64
_TIMEOUT_S = 600.0


def serve_decode(given: dict[str, Any], num_seqs: int, context: int) -> dict[str, float]:
    """Stream `num_seqs` answers of 64 tokens at once. Milliseconds of a step, wall and in the engine, and tokens/s.

    The wall clock runs from the first request to the last token, prefill included, so the engine's steps are all of
    those that the server's own metrics count in between.
    """
    words = [given["model"]] if given["model"] else []
    for name, value in given.items():
        if name != "model" and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    with own_server([*words, "--prefix-cache", "none"]) as server:
        return run_interruptible(_measure(server.url, num_seqs, max(1, context - NUM_OUTPUT // 2)))


async def _measure(url: str, num_seqs: int, num_prompt: int) -> dict[str, float]:
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits) as client:
        await _stream(client, [0] * num_prompt)
        before = await _steps(client)
        begin_s = time.perf_counter()
        chance = random.Random(0)
        prompts = [[chance.randrange(1000) for _ in range(num_prompt)] for _ in range(num_seqs)]
        await asyncio.gather(*(_stream(client, prompt) for prompt in prompts))
        wall_s = time.perf_counter() - begin_s
        after = await _steps(client)
    steps, inside_s = after[0] - before[0], after[1] - before[1]
    return {
        "num_steps": steps,
        "wall_ms_per_step": 1e3 * wall_s / steps,
        "engine_ms_per_step": 1e3 * inside_s / steps,
        "http_ms_per_step": 1e3 * (wall_s - inside_s) / steps,
        "http_percent_of_wall": 100 * (wall_s - inside_s) / wall_s,
        "output_tokens_per_s": num_seqs * NUM_OUTPUT / wall_s,
    }


async def _stream(client: httpx.AsyncClient, prompt: list[int]) -> None:
    body = {"prompt": prompt, "max_tokens": NUM_OUTPUT, "temperature": 0, "ignore_eos": True, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for _ in response.aiter_raw():
            pass


async def _steps(client: httpx.AsyncClient) -> tuple[float, float]:
    """Steps so far, and the seconds they took."""
    text = (await client.get("/metrics")).text
    found = dict(re.findall(r"^headway:step_time_seconds_(count|sum)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE))
    return float(found["count"]), float(found["sum"])
