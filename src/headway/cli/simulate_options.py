"""Flags of `headway simulate`, with their help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway.cli.summary import LoadingBar
    from headway.workload import WorkItem, Workload

STRIDE = 50
"""Requests between two drawings of the bar."""

_HARDWARE, _FLEET, _TIME = "Model and hardware", "Replicas", "Step times"

ModelCard = Annotated[
    str,
    typer.Option(metavar="CARD", help="A model card, or a config.json or its folder.", rich_help_panel=_HARDWARE),
]
Hardware = Annotated[
    str,
    typer.Option(
        metavar="CARD|FILE|this",
        help="A hardware card; or what `headway calibrate` wrote, which brings its model: a file, or this machine's.",
        rich_help_panel=_HARDWARE,
    ),
]
Tensor = Annotated[
    int,
    typer.Option("--tensor-parallel-size", "-tp", help="Devices that share each layer.", rich_help_panel=_HARDWARE),
]
Pipeline = Annotated[
    int,
    typer.Option("--pipeline-parallel-size", "-pp", help="Stages that share the layers.", rich_help_panel=_HARDWARE),
]
Utilization = Annotated[
    float,
    typer.Option("--gpu-memory-utilization", help="Share of a device's memory to use.", rich_help_panel=_HARDWARE),
]
Replicas = Annotated[int, typer.Option("--replicas", help="Equal replicas.", rich_help_panel=_FLEET)]
RouterName = Annotated[
    str,
    typer.Option(
        "--router",
        metavar="NAME",
        help="Who serves a request: least-loaded, round-robin, prefix-aware, tenant-aware.",
        rich_help_panel=_FLEET,
    ),
]
Decoders = Annotated[
    int,
    typer.Option(
        "--decode-replicas",
        help="So many more replicas make the answers, and --replicas only compute prompts; 0: no such split.",
        rich_help_panel=_FLEET,
    ),
]
Transfer = Annotated[
    float,
    typer.Option(help="GB/s at which prompts' KV moves to a decoding replica.", rich_help_panel=_FLEET),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Host overheads: ideal, cuda-graph, eager, python-server, vllm-0.19, none.",
        rich_help_panel=_TIME,
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="PREFIX",
        help="Kernel profiles PREFIX_tp{N}_{attention,dense,per_sequence}.csv instead of the roofline.",
        show_default=False,
        rich_help_panel=_TIME,
    ),
]
Vidur = Annotated[
    str | None,
    typer.Option(
        metavar="PREFIX",
        help="vidur's tables PREFIX_{mlp,attention}.csv, or the folder with both, instead of the roofline.",
        show_default=False,
        rich_help_panel=_TIME,
    ),
]
Calibrated = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE",
        help="Step times that `headway calibrate` fitted, instead of the roofline.",
        show_default=False,
        rich_help_panel=_TIME,
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option("--trace-file", help="Write a Chrome trace there.", show_default=False, rich_help_panel="Results"),
]
StepLogFile = Annotated[
    Path | None,
    typer.Option(
        "--step-log", help="Write every step there, as JSON lines.", show_default=False, rich_help_panel="Results"
    ),
]


@contextmanager
def shown(workload: Workload) -> Iterator[Iterator[WorkItem]]:
    """A workload's requests, with a bar on the terminal: virtual time has come as far as those that were sent."""
    from headway.cli.summary import LoadingBar

    def counted(bar: LoadingBar) -> Iterator[WorkItem]:
        for number, item in enumerate(workload.items()):
            if number % STRIDE == 0:
                bar.show("simulating requests", number, workload.num_requests)
            yield item

    with LoadingBar() as bar:
        yield counted(bar)
