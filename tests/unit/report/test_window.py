"""The window that counts."""

import pytest

from headway.report import choose_window, measure
from tests.unit.report.runs import request, run_of


@pytest.mark.parametrize("offset_s", [0.0, 0.37, 0.8])
@pytest.mark.parametrize("warmup_s", [10.0, 12.3, 17.9])
def test_tokens_count_where_they_come(offset_s, warmup_s):
    """Ten streams of 10 tokens/s are 100 tokens/s wherever the window begins: answers count for the part inside."""
    requests = [request(offset_s + k, gap_s=0.1, num_output=100, ttft_s=0.0) for k in range(50)]
    metrics = measure(run_of(requests, warmup_s=warmup_s))
    assert metrics.window.begin_s == warmup_s
    assert metrics.total.output_rate == pytest.approx(100, rel=0.02)


def test_drain_is_left_out_of_an_open_loop():
    """The window ends with the last intended arrival, and says so."""
    window = choose_window(run_of([request(k / 10, num_output=500) for k in range(100)], warmup_s=2))
    assert (window.begin_s, window.end_s) == (2, 9.9)
    assert "after the last arrival left out" in window.rule


def test_the_first_wave_of_a_closed_loop_is_left_out():
    """The window begins when every user had an answer and ends when the first user is done."""
    requests = []
    for user in range(8):
        now_s = 0.0
        for turn in range(5 + user % 2):
            requests.append(request(now_s, ttft_s=4.0 if turn == 0 else 0.2, session=f"u{user}", turn=turn))
            now_s = requests[-1].end_s
    window = choose_window(run_of(requests, is_closed_loop=True))
    first_wave_s = max(r.end_s for r in requests if r.turn == 0)
    assert window.begin_s == pytest.approx(first_wave_s)
    assert window.end_s == pytest.approx(min(max(r.end_s for r in requests if r.session == f"u{u}") for u in range(8)))
    metrics = measure(run_of(requests, is_closed_loop=True))
    assert metrics.total.latencies.ttft.high == pytest.approx(0.2)
    assert metrics.whole.latencies.ttft.high == pytest.approx(4.0)


def test_too_short_a_run_counts_as_a_whole_and_says_so():
    """Nine requests make no steady state."""
    window = choose_window(run_of([request(float(k)) for k in range(9)], warmup_s=1))
    assert window.begin_s == 0
    assert "too short" in window.rule


def test_an_empty_run_has_a_window():
    """Nothing sent, nothing breaks."""
    assert measure(run_of([])).total.num_requests == 0
