"""An engine's steps as charts: what was in each batch, how queues and memory filled, how long a step took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.report.chart import Chart, Mark, Series
from headway.report.record import StepSample

MAX_STEPS = 300
SINCE_START = "seconds since the start"


def step_charts(steps: Sequence[StepSample]) -> list[Chart]:
    """Charts of the steps; none without steps."""
    return [_composition(steps), _queues(steps), _memory(steps), _times(steps)] if steps else []


def _composition(steps: Sequence[StepSample]) -> Chart:
    # Thousands of narrow columns would be noise: beyond a few hundred steps, means of equally many each.
    count = min(len(steps), MAX_STEPS)
    edges = np.linspace(0, len(steps), count + 1).astype(np.int64)
    sizes = np.diff(edges)

    def mean(values: Sequence[float]) -> NDArray[np.float64]:
        sums: NDArray[np.float64] = np.add.reduceat(np.asarray(values, np.float64), edges[:-1]) / sizes
        return sums

    at_s = [steps[k].start_s for k in edges[:-1]]
    decode, prefill = mean([step.num_decode for step in steps]), mean([step.num_prefill for step in steps])
    return Chart(
        title="Composition of batches",
        x_label=SINCE_START,
        y_label="tokens in a step",
        series=[
            Series(name="decode", x=at_s, y=decode, mark=Mark.STACK, colour=0),
            Series(name="prefill", x=at_s, y=prefill, mark=Mark.STACK, colour=1),
        ],
        caption="" if count == len(steps) else f"Means of about {len(steps) / count:.0f} steps each.",
    )


def _queues(steps: Sequence[StepSample]) -> Chart:
    at_s = [step.start_s for step in steps]
    return Chart(
        title="Sequences in the engine",
        x_label=SINCE_START,
        y_label="sequences",
        series=[
            Series(name="running", x=at_s, y=[step.num_running for step in steps]),
            Series(name="waiting", x=at_s, y=[step.num_waiting for step in steps]),
        ],
    )


def _memory(steps: Sequence[StepSample]) -> Chart:
    used = [(step.start_s, 100 * step.kv_use) for step in steps if step.kv_use is not None]
    series = Series(name="KV use", x=[at_s for at_s, _ in used], y=[share for _, share in used])
    return Chart(title="KV cache in use", x_label=SINCE_START, y_label="% of blocks", series=[series])


def _times(steps: Sequence[StepSample]) -> Chart:
    series = Series(
        name="steps",
        x=[step.num_prefill + step.num_decode for step in steps],
        y=[1e3 * step.duration_s for step in steps],
        mark=Mark.DOTS,
    )
    return Chart(title="Step time", x_label="tokens in the step", y_label="ms", series=[series])
