from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import StepRecord
from headway.errors import BadSetting
from headway.sched import all_params
from headway.sched.policies.vtc import Vtc
from headway.sim import load_scene, parse_scene, run_scene
from tests.support.fairness import backlogs, bound, drift

SCENES = Path(__file__).parents[2] / "tapes" / "scenes"


class Watched(Vtc):
    """Notes the counters after each step."""

    log: list[dict[str, float]] = []  # noqa: RUF012  # of the latest run, for the test that made it

    def on_event(self, event):
        super().on_event(event)
        if isinstance(event, StepRecord):
            self.log.append({tenant: self.counters.of(tenant) for tenant in self.counters.tenants})


def counters_of(scene, settings):
    """The tape of a run, and the counters after each of its steps."""
    Watched.log.clear()
    tape = run_scene(scene, f"{__name__}:Watched", settings)
    return tape, list(Watched.log)


def test_two_slots():
    """ALGORITHMS §15's example: v is lifted to u's counter on arrival, and ties go to who came first."""
    _, log = counters_of(load_scene(SCENES / "tenants.json"), {"max_num_seqs": "2"})
    us = [12, 16, 20, 26, 28, 30, 30, 30, 30]
    vs = [None, None, None, 26, 28, 30, 36, 38, 40]
    assert [(step["u"], step.get("v")) for step in log] == list(zip(us, vs, strict=True))


@pytest.mark.parametrize("prediction", ["oracle", "noisy", "average"])
def test_prepaid_output_ends_at_the_same_charge(prediction):
    """However output is charged, in the end a tenant has paid for what it got."""
    scene = load_scene(SCENES / "tenants.json")
    end = {}
    for way in ("none", prediction):
        _, log = counters_of(scene, {"max_num_seqs": "5", "prediction": way})
        end[way] = log[-1]["u"]
    assert end[prediction] == pytest.approx(end["none"]) == 3 * (4 + 2 * 3)


def test_an_oracle_charges_at_admission():
    """With prediction=oracle all of a request is charged in its first step."""
    _, log = counters_of(load_scene(SCENES / "tenants.json"), {"max_num_seqs": "2", "prediction": "oracle"})
    assert [step["u"] for step in log[:4]] == [20, 20, 20, 30]


@given(scene=backlogs(), budget=st.integers(12, 30))
def test_backlogged_tenants_are_served_alike(scene, budget):
    """While both have work queued, services differ by at most 2 × max(prompt cost, 2 × tokens that fit the pool)."""
    tape, _ = counters_of(scene, {"max_num_batched_tokens": str(budget)})
    assert drift(scene, tape) <= bound(scene)


@given(share=st.sampled_from([2, 3]))
def test_weights_share_the_service(share):
    """A tenant of weight k gets k times the service of one of weight 1."""
    requests = [
        {"id": f"{tenant}{at}", "prompt": 2, "output": 2, "tenant": tenant, "weight": weight}
        for at in range(60)
        for tenant, weight in (("u", 1.0), ("v", float(share)))
    ]
    tape = run_scene(
        parse_scene({"block_size": 2, "num_blocks": 30, "requests": requests}), "vtc", {"max_num_seqs": "4"}
    )
    order = [name[0] for record in tape for name in record.finished][:60]
    assert order.count("v") / order.count("u") == pytest.approx(share, rel=0.15)


@given(gaps=st.lists(st.integers(0, 4), min_size=2, max_size=12), slots=st.integers(1, 3))
def test_idling_earns_nothing_and_counters_never_fall(gaps, slots):
    """Without prediction a counter only rises, and no slot stays empty while somebody waits."""
    requests = [
        {"id": f"{'uvw'[at % 3]}{at}", "arrival": arrival, "prompt": 3, "output": 3, "tenant": "uvw"[at % 3]}
        for at, arrival in enumerate(accumulate(gaps))
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 60, "requests": requests})
    tape, log = counters_of(scene, {"max_num_seqs": str(slots)})
    for sooner, later in pairwise(log):
        assert all(later[tenant] >= served for tenant, served in sooner.items())
    for record in tape:
        assert record.queued.num_running == slots or not record.queued.num_waiting


def test_settings_that_are_not_its_own_go_to_the_base():
    """`all_params` names the base's parameters too; a base without them, or with an order of its own, is refused."""
    params = all_params("vtc", {"base": "vllm", "max_num_seqs": "3", "token_cost": "4"})
    assert (params["base"], params["max_num_seqs"], params["token_cost"]) == ("vllm", 3, 4.0)
    scene = load_scene(SCENES / "tenants.json")
    with pytest.raises(BadSetting, match=r"'nonsense', nor has its base 'vllm'; known: .*token_cost.* base: .*max_num"):
        run_scene(scene, "vtc", {"nonsense": "1"})
    with pytest.raises(BadSetting, match="orders its queue itself"):
        run_scene(scene, "vtc", {"base": "ltr"})
    with pytest.raises(BadSetting, match="cannot wrap itself"):
        run_scene(scene, "vtc", {"base": "vtc"})
