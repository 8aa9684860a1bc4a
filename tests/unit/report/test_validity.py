"""What a report says against itself."""

import pytest

from headway.bench.runner import INTERRUPTED
from headway.report import Outcome, judge, measure
from tests.unit.report.runs import refused, request, run_of, steady_run


def warnings_of(run):
    return judge(run, measure(run))


def test_a_clean_run_is_valid():
    """Two thousand equal requests leave nothing to say."""
    verdict = warnings_of(steady_run(2000))
    assert (verdict.is_valid, verdict.warnings) == (True, ())


@pytest.mark.parametrize(
    ("run", "is_valid", "words"),
    [
        (run_of([refused(k / 10) if k % 2 else request(k / 10) for k in range(100)]), False, "50% of the requests"),
        (run_of([request(k / 10, outcome=Outcome.FAILED) for k in range(20)]), False, "not one request was answered"),
        (run_of([]), False, "no request falls into"),
        (run_of([request(k / 10) for k in range(50)], is_complete=False), False, "interrupted"),
        (
            steady_run(ttft_s=2.0, delay_s=1.5),
            True,
            "mean TTFT is 2000.0 ms from the intended time, 500.0 ms from sending",
        ),
        (run_of([request(k / 10) for k in range(50)], client_lag_s=[0.2] * 30), True, "loop woke up to 200 ms late"),
        (steady_run(count_source="chunks"), True, "did not count the tokens of 100 answers"),
        (steady_run(50), True, "sample size 50"),
        (run_of([request(k / 10) for k in range(50)], notes=["remember"]), True, "remember"),
    ],
)
def test_what_makes_numbers_lie_is_told(run, is_valid, words):
    """Failures, waiting in the client, guessed counts, small samples: each has its sentence."""
    verdict = warnings_of(run)
    assert verdict.is_valid is is_valid
    assert any(words in warning for warning in verdict.warnings), verdict.warnings


def test_an_interruption_is_told_once():
    """The runner notes it, too: a reader sees one sentence."""
    run = run_of([request(k / 10) for k in range(50)], is_complete=False, notes=[INTERRUPTED])
    assert warnings_of(run).warnings.count(INTERRUPTED) == 1


def test_the_client_s_own_gate_is_seen():
    """Eight requests due at ten a second, through a gate of one, to a server of half a second: 1.9 s and 0.5 s."""
    requests, free_s = [], 0.0
    for k in range(8):
        sent_s = max(k / 10, free_s)
        free_s = sent_s + 0.5
        requests.append(request(k / 10, ttft_s=free_s - k / 10, delay_s=sent_s - k / 10, num_output=1))
    run = run_of(requests)
    latencies = measure(run).total.latencies
    assert latencies.e2e.mean == pytest.approx(1.9, abs=0.05)
    assert latencies.ttft_since_sent.mean == pytest.approx(0.5)
    assert any("waited in the client" in warning for warning in warnings_of(run).warnings)
