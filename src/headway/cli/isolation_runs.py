"""How `headway bench isolation` makes one of its runs: on a server of its own, or in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.bench_screen import Screen
from headway.cli.own_server import OwnServer, own_server

if TYPE_CHECKING:
    from headway.bench.isolation import Felt, IsolationLoad


def run_live(load: IsolationLoad, tenants: Sequence[str], words: list[str], screen: Screen) -> Felt:
    """One run against `headway serve` with the flags `words`; the first of them may be its model."""
    from headway.bench.isolation import BIG, SMALL

    with own_server(words, [SMALL, BIG]) as server:
        return screen.run(_live(load, tenants, words, server, screen))


async def _live(
    load: IsolationLoad, tenants: Sequence[str], words: list[str], server: OwnServer, screen: Screen
) -> Felt:
    from headway.bench import HttpSettings, HttpTarget, Runner, RunPlan
    from headway.bench.ids import AnyIds
    from headway.bench.isolation import SMALL, felt
    from headway.clock import WallClock
    from headway.models import open_model

    items = load.items(tenants)
    model = words[0] if words and not words[0].startswith("-") else None
    clock = WallClock()
    target = HttpTarget(HttpSettings(url=server.url, fixed_length=True, api_key=server.keys[SMALL]), clock)
    plan = RunPlan(items=lambda: items, num_total=len(items), num_warmups=2, keys=server.keys)
    runner = Runner(
        target,
        AnyIds(open_model(model).tokenizer.vocab_size, load.seed),
        clock,
        plan,
        on_progress=lambda progress: screen.show(" and ".join(tenants), progress),
    )
    try:
        return felt(await runner.run_whole(), load.duration_s)
    finally:
        await target.close()


def run_virtual(policy: str, load: IsolationLoad, tenants: Sequence[str], given: dict[str, Any]) -> Felt:
    """One run of the same requests through the same scheduler, on a card's or a calibration's step times."""
    from headway.bench.isolation import felt
    from headway.sim import Plan, Pool, Site, hardware_card, model_card, overheads, simulate

    site = Site(
        model=model_card("SmolLM2-135M"),
        hardware=hardware_card(given["hardware"] or "CPU"),
        overheads=overheads("ideal"),
        fitted=given["calibration"],
    )
    limits = {"max_num_seqs": 256, "max_num_batched_tokens": given["max_num_batched_tokens"]}
    pool = Pool(plant=site.plant(), plan=Plan(policy=policy, settings=given["settings"], defaults=limits))
    return felt(simulate(load.items(tenants), pool), load.duration_s)
