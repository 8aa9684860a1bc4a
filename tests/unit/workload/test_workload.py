"""Workloads: repeatable, lazy, with sessions that resend and streams that do not disturb each other."""

import itertools

import numpy as np
import pytest

from headway.workload import continues, parse_workload

LENGTHS = {"prompt": "lognormal:mean=300,cv=1", "output": "uniform:low=1,high=80"}


def make(**fields):
    return parse_workload({"num_requests": 200, "arrivals": "poisson:rate=5", "lengths": LENGTHS} | fields)


def test_the_same_twice_and_another_by_seed():
    """items() is repeatable, and the seed decides."""
    workload = make(seed=1)
    assert list(workload.items()) == list(workload.items())
    assert list(make(seed=2).items()) != list(workload.items())


def test_changing_one_stream_leaves_the_others_alone():
    """Other lengths, habits or tenants do not move the arrivals; other arrivals do not change the lengths."""
    plain = list(make().items())
    longer = list(make(lengths={"prompt": 7, "output": 7}).items())
    habits = list(make(behaviour={"cancel_share": 0.5, "cancel_after_tokens": 5}).items())
    faster = list(make(arrivals="poisson:rate=9").items())
    assert [item.at_s for item in plain] == [item.at_s for item in longer] == [item.at_s for item in habits]
    assert [item.num_prompt for item in plain] == [item.num_prompt for item in habits]
    assert [item.num_prompt for item in plain] == [item.num_prompt for item in faster]


def test_a_duration_ends_it_and_it_is_lazy():
    """Nothing is sent after the duration; a workload of a million requests is not made before it is read."""
    assert all(item.at_s < 10 for item in make(num_requests=None, duration_s=10).items())
    assert len(list(itertools.islice(make(num_requests=100_000_000).items(), 5))) == 5


def test_shares():
    """Tenants get their shares of the requests; one with arrivals of its own comes on top."""
    tenants = [{"name": "a", "share": 3}, {"name": "b"}, {"name": "c", "arrivals": "constant:rate=5"}]
    items = list(make(num_requests=4000, tenants=tenants).items())
    counts = {name: sum(item.tenant == name for item in items) for name in "abc"}
    assert counts["c"] == pytest.approx(2000, rel=0.06)
    assert counts["a"] / counts["b"] == pytest.approx(3, rel=0.15)
    moments = [item.at_s for item in items]
    assert moments == sorted(moments)


def test_system_prompts_are_shared_with_zipf_popularity():
    """A share of the requests begins with one of a few prompts, the first the most often; they come on top."""
    system = {"count": 4, "tokens": 64, "zipf": 1.0, "share": 0.75}
    items = list(make(num_requests=4000, lengths={"prompt": 10, "output": 1}, prompts={"system": system}).items())
    having = [item.prefix for item in items if item.prefix]
    assert len(having) / len(items) == pytest.approx(0.75, abs=0.03)
    shares = sorted((having.count(prefix) / len(having) for prefix in set(having)), reverse=True)
    assert shares == pytest.approx(np.array([1, 1 / 2, 1 / 3, 1 / 4]) / (25 / 12), abs=0.03)
    assert {(item.num_prompt, item.num_prefix) for item in items} == {(10, 0), (74, 64)}


def test_sessions_resend_their_history():
    """Each turn's prompt is the whole talk so far and what is new; only the first has a moment."""
    sessions = {"turns": "fixed:value=4", "think_s": 2, "max_context": 5000}
    items = list(make(lengths={"prompt": 100, "output": 20}, sessions=sessions).items())
    first = items[:4]
    assert [item.num_prompt for item in first] == [100, 220, 340, 460]
    assert [item.think_s for item in first] == [0, 2, 2, 2]
    assert [item.at_s is None for item in first] == [False, True, True, True]
    assert {item.session for item in first} == {"top-0"}
    assert all(continues(earlier, later) for earlier, later in itertools.pairwise(first))
    assert not continues(items[0], items[5])


def test_agents_insert_tool_output_and_stop_at_the_context():
    """A tool's output makes the next prompt longer; a session ends before it outgrows the context."""
    sessions = {"turns": 50, "max_context": 9000, "tools": {"share": 1.0, "tokens": 2000}}
    items = list(make(lengths={"prompt": 100, "output": 20}, sessions=sessions).items())
    session = [item for item in items if item.session == "top-0"]
    assert [item.num_prompt for item in session] == [100, 2220, 4340, 6460, 8580]
    assert max(item.num_prompt + item.num_output for item in items) <= 9000


def test_recorded_sessions(shared_data):
    """Conversations of a trace are drawn whole."""
    path = shared_data / "traces" / "sharegpt_smollm2_multiturn_lengths.csv"
    workload = parse_workload({"num_requests": 300, "arrivals": "poisson:rate=1", "sessions": {"trace": str(path)}})
    items = list(workload.items())
    assert len({item.session for item in items}) > 30
    pairs = [pair for pair in itertools.pairwise(items) if pair[0].session and pair[0].session == pair[1].session]
    assert pairs
    assert all(continues(*pair) for pair in pairs)
    assert all(later.num_prompt > earlier.num_prompt + earlier.num_output for earlier, later in pairs)


def test_a_closed_loop_of_conversations():
    """A user's requests follow each other; a new conversation of the same user resends nothing."""
    arrivals = {"process": "closed", "users": 3, "requests_per_user": 5, "think_s": 7, "ramp_s": 6}
    items = list(make(arrivals=arrivals, sessions={"turns": 2, "think_s": 1}, num_requests=None).items())
    user = items[:5]
    assert [item.turn for item in user] == [0, 1, 2, 3, 4]
    assert [item.think_s for item in user] == [0, 1, 7, 1, 7]
    assert [item.at_s for item in items if item.turn == 0] == [0, 2, 4]
    assert [continues(*pair) for pair in itertools.pairwise(user)] == [True, False, True, False]


def test_habits_have_their_shares():
    """As many clients give up, or read slowly, as was asked for."""
    behaviour = {"cancel_share": 0.3, "cancel_after_s": "exponential:mean=2", "slow_share": 0.2, "slow_tokens_s": 4}
    behaviour |= {"retries": 2, "backoff_s": 0.5}
    items = list(make(num_requests=5000, behaviour=behaviour).items())
    assert np.mean([item.cancel_s is not None for item in items]) == pytest.approx(0.3, abs=0.03)
    assert np.mean([item.cancel_s for item in items if item.cancel_s is not None]) == pytest.approx(2, rel=0.15)
    assert np.mean([item.read_tokens_s == 4 for item in items]) == pytest.approx(0.2, abs=0.03)
    assert {(item.retries, item.backoff_s, item.cancel_tokens) for item in items} == {(2, 0.5, None)}


def test_max_output_is_at_least_the_output():
    """What clients tell the server is never below what they will take."""
    items = list(make(lengths=LENGTHS | {"max_output": 50}).items())
    assert all(item.max_output == max(50, item.num_output) for item in items)


def test_ids_differ_and_own_tokens_too():
    """Each request has its own id and seed."""
    items = list(make().items())
    assert len({item.id for item in items}) == len({item.seed for item in items}) == 200
