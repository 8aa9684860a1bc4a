"""A provider's client mix, as ServeGen publishes it: for each client, gap laws by ten minutes and lengths by six hours.

Source of format and laws: Xiang et al., ServeGen, arXiv 2505.09999. A client's gaps in a window are Gamma or Weibull
with the fitted shape and scale; they start anew with each window. Prompt and output lengths follow the client's
quantiles, straight between them.
"""

from __future__ import annotations

import csv
import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from headway.core import unreadable
from headway.errors import BadSetting
from headway.workload.item import WorkItem
from headway.workload.lengths import Quantiles
from headway.workload.seeds import stream
from headway.workload.shared import mix, named
from headway.workload.streams import Stream

CHUNK = 256
LAWS = ("Gamma", "Weibull")


@dataclass(frozen=True, slots=True, kw_only=True)
class GapWindow:
    """The law of a client's gaps from `start_s` on: its name, shape and scale (seconds)."""

    start_s: float
    law: str
    shape: float
    scale: float

    def gaps(self, rng: np.random.Generator) -> np.ndarray:
        """Gaps in seconds."""
        if self.law == "Gamma":
            return rng.gamma(self.shape, self.scale, CHUNK)
        return self.scale * rng.weibull(self.shape, CHUNK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client: its gap windows by time, and its laws of prompt and output from each moment of `lengths` on."""

    name: str
    rate: float  # mean over its windows, requests per second
    windows: Sequence[GapWindow]
    lengths: Sequence[tuple[float, Quantiles, Quantiles]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMix:
    """Clients that send independently, from `start_s` of the recorded day on, at `rate_scale` times their rates.

    Each client is a tenant. `template` gives habits and promises to all. `window_s` is the length of a gap window.
    """

    clients: Sequence[Client]
    template: Stream
    start_s: float = 0.0
    rate_scale: float = 1.0
    window_s: float = 600.0

    def visits(self, seed: int) -> Iterator[tuple[float, list[WorkItem]]]:
        """One request per visit, by time, until the recorded day ends."""
        return heapq.merge(*(self._requests(client, seed) for client in self.clients), key=_moment)

    def _requests(self, client: Client, seed: int) -> Iterator[tuple[float, list[WorkItem]]]:
        of_lengths, of_habits = stream(seed, "lengths", client.name), stream(seed, "behaviour", client.name)
        for number, at_s in enumerate(self._moments(client, stream(seed, "arrivals", client.name))):
            law = next(law for law in reversed(client.lengths) if law[0] <= at_s or law is client.lengths[0])
            num_prompt, num_output = (int(part.draw(of_lengths, 1)[0]) for part in law[1:])
            habits = self.template.behaviour.draw(of_habits)
            item = WorkItem(
                id="",
                num_prompt=num_prompt,
                num_output=num_output,
                max_output=max(num_output, self.template.max_output),
                at_s=at_s - self.start_s,
                tenant=client.name,
                slo=self.template.profile.slo,
                deadline_s=self.template.profile.deadline_s,
                cancel_tokens=habits.cancel_tokens,
                cancel_s=habits.cancel_s,
                read_tokens_s=habits.read_tokens_s,
                retries=self.template.behaviour.retries,
                backoff_s=self.template.behaviour.backoff_s,
                seed=mix(seed, named(client.name), number),
            )
            yield at_s - self.start_s, [item]

    def _moments(self, client: Client, rng: np.random.Generator) -> Iterator[float]:
        """Moments of the recorded day. Gaps are never cut: one that reaches beyond its window ends it."""
        for window in client.windows:
            if window.start_s + self.window_s <= self.start_s:
                continue
            now_s = max(window.start_s, self.start_s)
            while now_s < window.start_s + self.window_s:
                for gap_s in (window.gaps(rng) / self.rate_scale).tolist():
                    now_s += gap_s
                    if now_s >= window.start_s + self.window_s:
                        break
                    yield now_s


def read_clients(rates: Path, lengths: Path) -> list[Client]:
    """The clients of a ServeGen pair of files, busiest first. Raises `BadSetting` naming file and row."""
    windows, mean_rates = _read_windows(rates)
    laws = _read_lengths(lengths)
    clients = [
        Client(name=name, rate=mean_rates[name], windows=windows[name], lengths=laws[name])
        for name in windows
        if name in laws
    ]
    if not clients:
        raise BadSetting(f"{rates} and {lengths} have no client in common")
    return sorted(clients, key=lambda client: -client.rate)


def _read_windows(path: Path) -> tuple[Mapping[str, list[GapWindow]], Mapping[str, float]]:
    windows: dict[str, list[GapWindow]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    with _reading(path) as file:
        for number, row in enumerate(csv.DictReader(file), start=1):
            try:
                law, values = row["pattern"], {key: float(row[key]) for key in ("t_start_s", "rate_rps", "p1", "p2")}
                is_sound = law in LAWS and values["p1"] > 0 and values["p2"] > 0
            except (KeyError, TypeError, ValueError):
                is_sound, law, values = False, "", {}
            if not is_sound:
                needed = f"client, t_start_s, rate_rps, a pattern of {' or '.join(LAWS)}, and p1 and p2 above 0"
                raise BadSetting(f"{path}, row {number}: it must have {needed}")
            windows[row["client"]].append(
                GapWindow(start_s=values["t_start_s"], law=law, shape=values["p1"], scale=values["p2"])
            )
            rates[row["client"]].append(values["rate_rps"])
    ordered = {name: sorted(part, key=lambda window: window.start_s) for name, part in windows.items()}
    return ordered, {name: sum(part) / len(part) for name, part in rates.items()}


def _read_lengths(path: Path) -> Mapping[str, list[tuple[float, Quantiles, Quantiles]]]:
    with _reading(path) as file:
        try:
            content = json.load(file)
            levels = content["quantile_levels"]
            return {
                name: sorted(
                    (
                        (float(start), _law(levels, part["input_tokens"]), _law(levels, part["output_tokens"]))
                        for start, part in parts.items()
                    ),
                    key=_start,
                )
                for name, parts in content["clients"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadSetting(f"{path} is no file of ServeGen length quantiles: {error!r}") from error


def _law(levels: Sequence[float], law: Mapping[str, Sequence[float]]) -> Quantiles:
    if len(levels) != len(law["q"]):
        raise ValueError("a law has not one quantile per level")
    return Quantiles(levels=levels, values=law["q"])


def _reading(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise unreadable(path, error) from error


def _moment(visit: tuple[float, list[WorkItem]]) -> float:
    return visit[0]


def _start(law: tuple[float, Quantiles, Quantiles]) -> float:
    return law[0]
