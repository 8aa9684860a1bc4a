"""What `headway serve` writes down, or sends, of its traffic and its decisions."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import BadSetting

if TYPE_CHECKING:
    from headway.engine import AsyncLLM
    from headway.obs import Recorder
    from headway.obs.decision_log import DecisionLog
    from headway.obs.rotating import RotatingFile

_ENDPOINT = re.compile(r"https?://[^/\s]")


class Recording:
    """Files that are opened before the model is loaded, and completed when all is over. Raises `BadSetting`."""

    def __init__(
        self, requests: Path | None, steps: Path | None, max_mb: int, *, traces_endpoint: str | None = None
    ) -> None:
        if requests is not None and steps is not None and requests.absolute() == steps.absolute():
            raise BadSetting(f"--record and --record-steps both name {steps}; give each a file of its own")
        if traces_endpoint is not None and not _ENDPOINT.match(traces_endpoint):
            raise BadSetting(
                f"--otlp-traces-endpoint is {traces_endpoint[:200]!r}; it must be the collector's URL, "
                "like http://localhost:4318/v1/traces"
            )
        self._traces_endpoint = traces_endpoint
        self._requests, self._steps, self._max_bytes = requests, steps, max_mb << 20
        self._recorder: Recorder | None = None
        self._decisions: RotatingFile | None = None
        self._log: DecisionLog | None = None
        self._open = ExitStack()

    def __enter__(self) -> None:
        """Open all files, or none, and look whether traces can be sent."""
        if self._traces_endpoint is not None:
            _require_otel()
        with ExitStack() as opened:
            if self._requests is not None:
                from headway.obs import Recorder

                self._recorder = Recorder(self._requests, max_bytes=self._max_bytes)
                opened.callback(self._recorder.close)
            if self._steps is not None:
                from headway.obs.rotating import RotatingFile

                self._decisions = RotatingFile(self._steps, self._max_bytes)
                opened.callback(self._end_decisions)
            self._open = opened.pop_all()

    def __exit__(self, *_: object) -> None:
        """Write what is left."""
        self._open.close()

    def follow(self, llm: AsyncLLM) -> None:
        """Listen to a loaded engine."""
        if self._recorder is not None:
            llm.add_listener(self._recorder.on_events)
            llm.control.admission.on_refusal = self._recorder.on_refusal
        if self._decisions is not None:
            from headway.engine import scheduling_facts
            from headway.obs.decision_log import DecisionLog

            engine = llm.engine
            self._log = DecisionLog(
                self._decisions,
                scheduling_facts(engine),
                block_size=engine.limits.block_size,
                max_bytes=self._max_bytes,
            )
            llm.add_listener(self._log.on_events)
        if self._traces_endpoint is not None:
            from headway.obs.spans import otlp_spans

            spans = otlp_spans(self._traces_endpoint, llm.model_name, llm.engine.clock.now)
            self._open.callback(spans.close)
            llm.add_listener(spans.on_events)

    def _end_decisions(self) -> None:
        """The file is its log's, once there is one: whose writer may still be at it when the wait for it is over."""
        if self._log is not None:
            self._log.close()
        elif self._decisions is not None:
            self._decisions.close()


def _require_otel() -> None:
    try:
        import headway.obs.spans  # noqa: F401 - whether it can be loaded is the question
    except ImportError as error:
        raise BadSetting(f"traces need the extra otel: pip install 'headway[otel]' ({error})") from None
