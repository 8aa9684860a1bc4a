"""Runs in OpenVINO GenAI's environment: one list of requests through its continuous batching, in this process.

    python openvino_child.py '{"model": PATH, "threads": 2, "budget": 256, "at_once": 16}' < requests.json

Requests are [{"prompt": ..., "num_output": ..., "at_s": ..., "cancel_s": ..., "is_warmup": ...}, ...]; they start when
their moment has come and fewer than `at_once` are under way. Prints one JSON document: for each request its token
times since the start of the run, and the seconds that loading took.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import openvino_genai as ov

BEGAN_S = time.monotonic()


def load(wanted: dict[str, Any]) -> ov.ContinuousBatchingPipeline:
    """The pipeline; what is not named is OpenVINO's default."""
    config = ov.SchedulerConfig()
    config.max_num_batched_tokens = wanted["budget"]
    config.cache_size = 1  # GB
    config.enable_prefix_caching = False  # no prompt comes twice
    return ov.ContinuousBatchingPipeline(wanted["model"], config, "CPU", {"INFERENCE_NUM_THREADS": wanted["threads"]})


def greedy(num_output: int) -> ov.GenerationConfig:
    """Exactly `num_output` tokens, the likeliest each time."""
    config = ov.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = num_output
    config.ignore_eos = True
    config.do_sample = False
    return config


def run(
    pipe: ov.ContinuousBatchingPipeline, requests: list[dict[str, Any]], at_once: int
) -> tuple[list[dict[str, Any]], float]:
    """Token times of every request, and when it was sent, counted from the start of this run."""
    start_s = time.monotonic()
    waiting = list(enumerate(requests))
    under_way = {}
    seen = [{"sent_s": 0.0, "num_prompt": 0, "token_s": []} for _ in requests]
    while waiting or under_way:
        now_s = time.monotonic() - start_s
        while waiting and len(under_way) < at_once and waiting[0][1]["at_s"] <= now_s:
            k, request = waiting.pop(0)
            seen[k]["sent_s"] = time.monotonic() - start_s
            ids = pipe.get_tokenizer().encode(request["prompt"]).input_ids
            seen[k]["num_prompt"] = ids.shape[1]
            under_way[k] = pipe.add_request(k, ids, greedy(request["num_output"]))
        if not under_way:
            time.sleep(0.001)
            continue
        pipe.step()
        now_s = time.monotonic() - start_s
        for k, handle in list(under_way.items()):
            if handle.can_read():
                for output in handle.read().values():
                    seen[k]["token_s"] += [now_s] * len(output.generated_ids)
            is_over = handle.get_status() != ov.GenerationStatus.RUNNING
            if not is_over and requests[k]["cancel_s"] is not None and now_s > requests[k]["cancel_s"]:
                handle.cancel()
                is_over = True
            if is_over:
                del under_way[k]
    return seen, time.monotonic() - start_s


def main() -> None:
    """Load, warm up, run, report."""
    wanted, requests = json.loads(sys.argv[1]), json.load(sys.stdin)
    pipe = load(wanted)
    start_s = time.monotonic() - BEGAN_S
    run(pipe, [request for request in requests if request["is_warmup"]], 1)
    seen, duration_s = run(pipe, [request for request in requests if not request["is_warmup"]], wanted["at_once"])
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    document = {"requests": seen, "duration_s": duration_s, "start_s": start_s, "resident_bytes": resident}
    print("\n" + json.dumps(document), flush=True)


main()
