"""A contest's finished runs in a file, so that a long one can be made in pieces."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path

from headway.bench.contest import Base, Heat
from headway.bench.maker import Maker
from headway.bench.score import Score
from headway.errors import BadSetting


class Logbook:
    """JSON lines: what the contest is about, what `vllm` sustains, and a line for each finished run.

    `about` is what must be the same for runs to be comparable; an older log may say less of it. Lines are written when
    a run ends, so that an interruption costs the run under way and nothing else: half a line at the end is taken off.
    """

    def __init__(self, path: Path, about: Mapping[str, object], maker: Maker | None = None) -> None:
        """Read what is there; `maker`, who makes the runs that will be added, is kept with each of them.

        Raises `BadSetting` for a file that is no logbook, or another contest's.
        """
        self._path = path
        self.base: Base | None = None
        self._maker, self._makers = maker or Maker(), dict[tuple[str, float, int], Maker]()
        self._scores: dict[tuple[str, float, int], Score] = {}
        content = self._content()
        if not content:
            self._append({"about": dict(about)})
            return
        whole = content[: content.rfind(b"\n") + 1]
        lines = self._lines(whole)
        self._compare(lines[0].get("about"), json.loads(json.dumps(dict(about))))
        for line in lines[1:]:
            self._take(line)
        if len(whole) < len(content):
            self._cut(len(whole))

    def find(self, heat: Heat) -> Score | None:
        """The score of a run that was made before."""
        return self._scores.get(_key(heat))

    def maker(self, heat: Heat) -> Maker:
        """Who made a run; nothing of that is known where an older log does not say."""
        return self._makers.get(_key(heat), Maker())

    def add(self, heat: Heat, score: Score) -> None:
        """A run has ended."""
        line = {"policy": heat.policy, "factor": heat.factor, "repeat": heat.repeat, "score": asdict(score)}
        self._append(line | {"maker": asdict(self._maker)})
        self._makers[_key(heat)] = self._maker

    def set_base(self, base: Base) -> None:
        """Keep what all runs' rates are multiples of."""
        self.base = base
        self._append({"base": asdict(base)})

    def _compare(self, logged: object, about: Mapping[str, object]) -> None:
        """Raise `BadSetting` where the log says something else."""
        if not isinstance(logged, dict):
            raise BadSetting(
                f"{self._path} is no log of runs, whose first line says what they are about; name another file"
            )
        for key, value in logged.items():
            if value != (here := about.get(key)):
                raise BadSetting(
                    f"{self._path} holds runs of another model, workload or setting: {key} is {value!r} there and "
                    f"{here!r} here; name another file"
                )

    def _take(self, line: Mapping[str, object]) -> None:
        try:
            if "base" in line:
                base = line["base"]
                assert isinstance(base, dict)
                self.base = Base(rate=float(base["rate"]), glance_s=float(base["glance_s"]))
                return
            given = line["score"]
            assert isinstance(given, dict)
            given.setdefault("lag_p99_ms", 0.0)  # older logs do not know it
            score = Score(**{entry.name: given[entry.name] + 0 for entry in fields(Score)})  # all are numbers
            key = str(line["policy"]), float(str(line["factor"])), int(str(line["repeat"]))
            self._scores[key] = score
            maker = line.get("maker", {})  # older logs do not know it
            assert isinstance(maker, dict), "its maker is no object"
            self._makers[key] = Maker(**{entry.name: str(maker.get(entry.name, "")) for entry in fields(Maker)})
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise BadSetting(f"{self._path} has a line that is no finished run: {error}") from None

    def _content(self) -> bytes:
        if not self._path.exists():
            return b""
        try:
            return self._path.read_bytes()
        except OSError as error:
            raise BadSetting(f"cannot read {self._path} as a log of runs: {error.strerror}") from None

    def _lines(self, content: bytes) -> list[dict[str, object]]:
        try:
            lines = [json.loads(text) for text in content.decode().split("\n") if text.strip()]
        except (ValueError, RecursionError) as error:
            raise BadSetting(f"cannot read {self._path} as a log of runs: {error}; name another file") from None
        if not lines or not all(isinstance(line, dict) for line in lines):
            raise BadSetting(f"{self._path} is no log of runs, whose lines are objects; name another file")
        return lines

    def _cut(self, num_bytes: int) -> None:
        """Take off what somebody was writing when it was stopped."""
        try:
            os.truncate(self._path, num_bytes)
        except OSError as error:
            raise BadSetting(f"cannot write {self._path}: {error.strerror}") from None

    def _append(self, line: Mapping[str, object]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise BadSetting(f"cannot write {self._path}: {error.strerror}") from None


def _key(heat: Heat) -> tuple[str, float, int]:
    return heat.policy, heat.factor, heat.repeat
