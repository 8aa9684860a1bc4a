"""Memory ahead of time for `headway`: the predicted peak, the risk of admission, and the price of giving way."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Request, Sequence
from headway.sched.parts import OutputLengths, PeakGate, relieve
from headway.sched.parts.peak import peak_tokens
from headway.sched.parts.shortage import Prices
from headway.sched.policies.headway import Headway
from headway.sim import parse_scene, run_scene

CAPACITY, RISK = 8_000, 0.05


def most_held(entries):
    """Tokens held at the worst moment when everybody emits one token a step: (held now, tokens to come) of each."""
    return max(sum(held + at for held, left in entries if left >= at) for _, at in entries)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=8), st.sampled_from([0.05, 0.5])
)
def test_with_certain_lengths_the_peak_is_exact(entries, overflow):
    """Without variance it is the most that is held at any step, whatever risk is accepted."""
    assert peak_tokens([(held, left, 0.0) for held, left in entries], overflow) == most_held(entries)


def test_a_risk_too_small_for_arithmetic_is_the_smallest_there_is():
    """1 - 1e-300 is 1, which no draw is sure to stay below."""
    entries = [(10.0, 5.0, 4.0), (7.0, 9.0, 1.0)]
    assert peak_tokens(entries, 1e-300) == peak_tokens(entries, 2.0**-53) > peak_tokens(entries, 1e-9)


def test_admission_outgrows_memory_no_more_often_than_it_may():
    """Lengths learnt from 128 answers: of those who were let in at once, draws outgrow the memory within the bound."""
    rng = random.Random(0)

    def length():
        return min(500, max(1, round(rng.lognormvariate(4.1, 0.8))))

    lengths = OutputLengths()
    for at in range(128):
        lengths.learn(request(f"past{at}"), length())
    gate, inside = PeakGate(lengths, [], CAPACITY, RISK), []
    while gate.admits(new := Sequence(request(str(len(inside))))):
        gate.add(new)
        inside.append(new)
    assert len(inside) * (50 + 500) > CAPACITY, "it takes a risk"
    peaks = [most_held([(seq.num_tokens, length()) for seq in inside]) for _ in range(100)]
    assert sum(peak > CAPACITY for peak in peaks) / len(peaks) <= RISK


class Priced(Headway):
    """Copies cost nothing against computing, or the other way round."""

    prices = Prices(1.0, 1.0)

    def _give_way(self, view, plan, rank):
        return relieve(view, plan, self.prices, rank)


class CheapCopies(Priced):
    prices = Prices(recompute_s=1.0, copy_s=1e-6)


class DearCopies(Priced):
    prices = Prices(recompute_s=1e-6, copy_s=1.0)


@pytest.mark.parametrize(("policy", "swaps"), [("CheapCopies", True), ("DearCopies", False)])
def test_the_cheaper_way_is_taken(policy, swaps):
    """The same shortage: swapped where copying is cheaper than computing again, and never where it is dearer."""
    requests = [{"id": name, "prompt": 14, "output": 12} for name in "ABC"]
    scene = parse_scene({"block_size": 4, "num_blocks": 13, "requests": requests})
    records = run_scene(scene, f"{__name__}:{policy}", {"overflow": "0"})
    assert any(record.swapped_out for record in records) == swaps
    assert any(record.preempted for record in records) != swaps


def request(name):
    return Request(id=name, prompt_ids=tuple(range(50)), max_output=500, arrival_s=0.0)


def test_a_remainder_in_the_queue_does_not_lock_out_who_comes_first():
    """D gave up half for G, then nobody runs: B, which comes before D, needs what D still holds, and gets it."""
    requests = [
        {"id": "D", "prompt": 26, "output": 7},
        {"id": "G", "prompt": 8, "output": 4, "priority": -2},
        {"id": "B", "arrival": 1, "prompt": 29, "output": 3, "priority": -1},
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 9, "host_blocks": 0, "requests": requests})
    records = run_scene(scene, "headway", {"overflow": "0"})
    assert [record.step for record in records if record.preempted == ["D"]] == [1, 4]  # in part, then all
    assert [name for record in records for name in record.finished] == ["G", "B", "D"]
