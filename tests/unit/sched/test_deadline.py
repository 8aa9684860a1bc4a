from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Request, Sequence
from headway.errors import BadSetting
from headway.sched.parts.slack import SAFETY, TOTALS, Mix, fitted, measured, prefill_tokens, totals_for
from headway.sched.parts.steptime import StepLoad, StepTimeModel
from headway.sched.parts.terms import Promises, Terms
from headway.sched.policies.deadline import Deadline, DeadlineParams
from headway.sim import parse_scene, run_scene
from tests.support.scenes import scenes


def request(name, arrival, num_prompt, **terms):
    """A sequence that waits, with its terms."""
    return Sequence(Request(id=name, prompt_ids=(1,) * num_prompt, max_output=8, arrival_s=arrival, **terms))


A = request("A", 10.0, 500, ttft_s=6.0)
B = request("B", 9.0, 4000, ttft_s=6.0)


def test_the_hybrid_order():
    """ALGORITHMS §20: keys 20.0 and 47.0, so A goes first; by deadline alone B would (15 before 16)."""
    hybrid, edf, srpf = (Deadline(DeadlineParams(alpha=alpha)) for alpha in (0.008, 0.0, 1e6))
    assert [hybrid.key(seq)[1] for seq in (A, B)] == pytest.approx([20.0, 47.0])
    assert [edf.key(seq)[1] for seq in (A, B)] == [16.0, 15.0]
    assert srpf.key(A) < srpf.key(B)


@pytest.mark.parametrize(
    ("slack", "wanted"),
    [(0.0, 112), (-1.0, 112), (0.030, 112), (0.050, 240), (0.080, 496), (0.120, 752), (0.300, 2032)],
)
def test_chunks_follow_the_slack(slack, wanted):
    """ALGORITHMS §20: prompt tokens beside 16 decodes of 1000 tokens of context each."""
    assert prefill_tokens(slack, Mix(16, 0, 16_000, 0), TOTALS, fitted) == wanted


@given(
    slack=st.floats(-0.1, 1.0),
    num_decodes=st.integers(0, 300),
    context=st.integers(0, 200_000),
    prefill_context=st.integers(0, 4000),
    num_free=st.integers(0, 100_000),
    most=st.integers(1, 3000),
)
def test_a_chunk_keeps_to_the_slack_or_is_the_least(slack, num_decodes, context, prefill_context, num_free, most):
    """Predicted time with safety stays within the slack, unless the chunk is the least; no total exceeds `most`."""
    totals = totals_for(num_free, most)
    num = prefill_tokens(slack, Mix(num_decodes, 0, context, prefill_context), totals, fitted)
    assert 0 <= num <= max(totals) <= most
    fits = SAFETY * fitted(Mix(num_decodes, num, context, prefill_context)) <= slack
    assert fits or num == max(0, totals[0] - num_decodes)


def test_little_memory_means_small_chunks():
    """With less than 32 000 free tokens totals stop at 512: the table is cut short, nothing is put between."""
    assert totals_for(31_999, 4096) == [128, 256, 512]
    assert totals_for(32_000, 4096) == list(TOTALS)


def test_measured_steps_take_the_place_of_the_fit():
    """Before the model knows anything a chunk beside decodes is the least; then it follows what was measured."""
    model = StepTimeModel()
    decodes = Mix(4, 0, 0, 0)
    assert prefill_tokens(1.0, decodes, TOTALS, measured(model)) == 124
    for step in range(64):
        num_tokens = 10 + 20 * (step % 8)
        model.observe(StepLoad(num_tokens, 0, 1 + step % 5), 0.01 + 0.001 * num_tokens)
    assert prefill_tokens(SAFETY * 0.6, decodes, TOTALS, measured(model)) == 508


def test_relegation_is_eager():
    """ALGORITHMS §20: B needs 4000 / 8500 s, so it can make it at 13.0 and no more at 14.7."""
    policy = Deadline(DeadlineParams())
    assert not policy.is_hopeless(B, 13.0)
    assert policy.is_hopeless(B, 14.7)


def test_terms():
    """Interactive tokens follow each other by tbt; a batch request is due early enough for its expected output."""
    terms = Terms(Promises(ttft=6.0, tbt=0.05, tbt_batch=0.5))
    batch = request("C", 100.0, 10, deadline_s=700.0, predicted=20)
    assert terms.first_due(batch) == 690.0
    assert terms.first_due(request("D", 1.0, 1)) == 7.0
    seq = request("E", 10.0, 1, ttft_s=6.0)
    seq.token_ids += [1, 2]
    assert terms.next_due(seq) == pytest.approx(16.15)
    assert terms.is_batch(batch)
    assert not terms.is_batch(seq)


@given(scene=scenes(max_requests=6), alpha=st.sampled_from(["0", "0.5", "100"]), size=st.sampled_from(["0", "4", "9"]))
def test_every_decode_is_in_every_step(scene, alpha, size):
    """Once its output has begun, a sequence runs in each step until its end, unless it is preempted."""
    tape = run_scene(scene, "deadline", {"alpha": alpha, "chunk_size": size})
    wants = {request.id: request for request in scene.requests}
    computed, emitted = dict.fromkeys(wants, 0), dict.fromkeys(wants, 0)
    for record in tape:
        for name in record.preempted:
            computed[name] = -inf
        for name in record.grants:
            if computed[name] == -inf:
                computed[name] = 0
        decoding = {
            name for name in wants if emitted[name] and computed[name] >= wants[name].prompt + emitted[name] - 1
        }
        live = {name for name in decoding if emitted[name] < wants[name].output}
        assert live <= set(record.grants)
        for name, num_tokens in record.grants.items():
            computed[name] += num_tokens
            emitted[name] += computed[name] >= wants[name].prompt + emitted[name]


class Checked(Deadline):
    """Fails on a step that computes a relegated prompt and leaves out one that is not."""

    def plan(self, view):
        plan = super().plan(view)
        granted = {entry.seq.id for entry in plan.grants if not entry.seq.is_decoding}
        prompts = [seq for seq in (*view.running, *view.waiting) if not seq.is_decoding]
        in_time = {seq.id for seq in prompts if not self.key(seq)[0]}
        assert granted <= in_time or in_time <= granted
        return plan


@given(prompts=st.lists(st.integers(1, 30), min_size=2, max_size=6), ttfts=st.lists(st.integers(1, 40), min_size=6))
def test_the_hopeless_run_after_all_others(prompts, ttfts):
    """Prompts that cannot make it are computed only when all that can are, and end all the same."""
    requests = [
        {"id": str(at), "arrival": at // 2, "prompt": num, "output": 2, "ttft": ttft}
        for at, (num, ttft) in enumerate(zip(prompts, ttfts, strict=False))
    ]
    scene = parse_scene({"block_size": 4, "num_blocks": 100, "requests": requests})
    settings = {"chunk_size": "5", "prefill_throughput": "5"}
    tape = run_scene(scene, f"{__name__}:Checked", settings)
    assert sorted(name for record in tape for name in record.finished) == sorted(entry["id"] for entry in requests)


def test_contradictory_settings_are_refused():
    """A fixed chunk above the token budget is a contradiction, and said so."""
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 1, "output": 1}]})
    with pytest.raises(BadSetting, match="max_num_batched_tokens is 8; it must be at least 9"):
        run_scene(scene, "deadline", {"chunk_size": "9", "max_num_batched_tokens": "8"})
