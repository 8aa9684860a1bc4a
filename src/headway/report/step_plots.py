"""An engine's steps as charts: what was in each batch, how queues and memory filled, how long a step took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.report.chart import Chart, Mark, Series
from headway.report.record import StepSample

MAX_STEPS = 700
SINCE_START = "seconds since the start"


def step_charts(steps: Sequence[StepSample]) -> list[Chart]:
    """Charts of the steps; none without steps."""
    return [_composition(steps), _queues(steps), _memory(steps), _times(steps)] if steps else []


def _composition(steps: Sequence[StepSample]) -> Chart:
    # A stack needs the same steps in each of its layers, so both are thinned here, alike.
    keep = np.linspace(0, len(steps) - 1, min(len(steps), MAX_STEPS)).astype(np.int64)
    picked = [steps[k] for k in keep]
    at_s = [step.start_s for step in picked]
    return Chart(
        title="Composition of batches",
        x_label=SINCE_START,
        y_label="tokens in a step",
        series=[
            Series(name="decode", x=at_s, y=[step.num_decode for step in picked], mark=Mark.STACK, colour=0),
            Series(name="prefill", x=at_s, y=[step.num_prefill for step in picked], mark=Mark.STACK, colour=1),
        ],
        caption="" if len(picked) == len(steps) else f"{len(picked)} of {len(steps)} steps, evenly apart.",
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
