"""Experiments in miniature, continued: the direction of each paper's claim, in a fraction of a second."""

from dataclasses import replace
from statistics import fmean

import pytest

from headway.experiments import (
    adaptive_batch,
    disaggregation,
    feedback,
    piggyback,
    prefix_reuse,
    split_fuse,
)
from headway.experiments.demand import LogNormal, demand, log_normal, request
from headway.experiments.effort import Effort
from headway.experiments.goodput import Measured
from headway.experiments.probing import answered, run
from headway.report import Outcome, RequestRecord
from headway.sim import handed_over


def test_feedback_queues_answer_sooner_on_average_than_arrival_order():
    """In batches too small for the load, with short and long answers."""
    asked = demand(log_normal(40, LogNormal(50, 100, 200), LogNormal(40, 300, 500)))
    found = feedback._latencies(asked, (8.0,), feedback._plant(), feedback._systems(4))
    assert fmean(found["FastServe", 8.0]) < 0.8 * fmean(found["Orca", 8.0])


def test_a_decode_beside_a_chunk_costs_less_than_one_alone():
    """On both devices of the paper."""
    assert all(piggyback.decode_gain(site) > 2.0 for site in (piggyback.SMALL, piggyback.LARGE))


def test_even_steps_leave_a_pipeline_less_idle():
    """Chunks against whole prompts, through eight stages."""
    items = [request(at, 900 + 50 * at, 12, 0.0) for at in range(16)]
    plant = piggyback._pipe(8)
    chunks = piggyback._pass(items, plant, "sarathi", piggyback._rows(256))
    whole = piggyback._pass(items, plant, "orca", {"max_batch_size": 2, "num_workers": 8})
    assert 0.0 < chunks.idle < whole.idle < 1.0


def test_shared_examples_are_computed_once():
    """Throughput grows several times where nearly all of a prompt was sent before."""
    items = prefix_reuse.requests(prefix_reuse.TASKS["HellaSwag, 20 examples"], Effort(share=0.1))
    plant = prefix_reuse.site()
    slow, fast = (prefix_reuse._outcome(items, system, plant) for system in ("vLLM", "SGLang"))
    assert slow.hit == 0.0
    assert fast.hit > 0.8
    assert fast.rate > 4 * slow.rate


def test_sessions_resend_what_was_said():
    """The second turn starts with the first one's prompt and answer, and is longer by what is new."""
    task = prefix_reuse.TASKS["chat, short answers"]
    first, second = prefix_reuse._session(task, 0, 0)[:2]
    assert second.prefix[: len(first.prefix)] == first.prefix
    assert second.num_prompt == first.num_prompt + task.answer + task.own
    assert task.reusable == pytest.approx(1 - 4 * 384 / (384 + 784 + 1184 + 1584))


@pytest.mark.parametrize(
    ("token_s", "is_kept"),
    [([1.0, 1.2, 1.4], True), ([1.0, 1.2, 3.4, 3.6], False), ([1.0, 1.6], False), ([2.5, 2.6], False)],
)
def test_a_promise_is_broken_by_a_late_first_token_or_a_slow_average(token_s, is_kept):
    """512 prompt tokens in a second; then never below three tokens per second, on average."""
    record = RequestRecord(
        id="r",
        intended_s=0.0,
        sent_s=0.0,
        outcome=Outcome.OK,
        num_prompt=1024,
        num_output=len(token_s),
        first_s=token_s[0],
        last_s=token_s[-1],
        token_s=token_s,
    )
    assert split_fuse.Promise(3.0).is_kept(record) is is_kept


def test_a_rate_at_a_latency_lies_between_its_neighbours():
    """On the line; beyond the ends it is the end's."""
    points = [(4.0, 1.0), (8.0, 1.5), (16.0, 1.7)]
    assert split_fuse.rate_at(points, 6.0) == pytest.approx(1.25)
    assert (split_fuse.rate_at(points, 1.0), split_fuse.rate_at(points, 99.0)) == (1.0, 1.7)


def test_answers_are_steadier_where_prompts_are_computed_elsewhere():
    """The longest TPOT of a burst, apart and together."""
    task = replace(disaggregation.FIRST, num=30)
    found = disaggregation._deployments(task, Effort(), "eager")
    apart, together = (found[name].at(60.0) for name in (disaggregation.SPLITS[0], "vLLM"))
    assert max(tpot for _, tpot in apart) < max(tpot for _, tpot in together)


def test_every_rate_is_served_once_whatever_limits_are_asked_about():
    """Two curves of one deployment share its runs."""
    task = replace(disaggregation.FIRST, num=4)
    site = disaggregation._site(task, "cuda-graph")
    serve = disaggregation.apart(
        site, disaggregation._demand(task, Effort()), 1, handed_over(site.model, site.hardware.peer)
    )
    served = []

    def watched(rate):
        served.append(rate)
        return serve(rate)

    measured = Measured(task, "m", watched)
    assert measured.curve(100.0).at(1.0) == 0.0
    assert measured.curve(1e-6).at(1.0) == 1.0
    assert served == measured.rates == [1.0]


def test_a_batch_size_that_follows_memory_preempts_less():
    """Than a fixed one that is far too large, with no less throughput than one that is far too small."""
    lengths = log_normal(30, *adaptive_batch.LENGTHS)
    items = [request(at, *pair, 0.0) for at, pair in enumerate(lengths)]
    plant = adaptive_batch._plant("A100-40", 6_000)
    systems = adaptive_batch._memory_systems()
    few, many, ours = (
        adaptive_batch._outcome(run(items, plant, policy, **settings))
        for policy, settings in (systems[name] for name in ("fixed, 8", "fixed, 256", "expected lengths"))
    )
    assert ours.num_preemptions < many.num_preemptions
    assert ours.rate > few.rate


def test_closed_loops_send_when_they_are_answered():
    """As many requests at once as clients, and all of them in the end."""
    items = split_fuse.closed_loop(3, 12, (300, 10), seed=1)
    record = run(items, split_fuse._plant(split_fuse.OVERHEADS["ideal"]), "splitfuse")
    requests = answered(record)
    assert len(requests) == 12
    moments = sorted([(one.intended_s, 1) for one in requests] + [(one.end_s, -1) for one in requests])
    level = most = 0
    for _, change in sorted(moments, key=lambda moment: (moment[0], moment[1])):
        level += change
        most = max(most, level)
    assert most == 3
