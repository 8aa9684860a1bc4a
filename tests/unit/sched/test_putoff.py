"""Who is put off when prompts queue up."""

from headway.core import Arrived, Finished, FinishReason, Request, Sequence
from headway.sched.parts.putoff import AFTER_FIXED, AFTER_S, FIRST_CREDIT, MOST_CREDIT, NUM_AGES, PutOff


def seq(name, prompt, **own):
    return Sequence(Request(id=name, prompt_ids=tuple(range(prompt)), max_output=4, **{"arrival_s": 0.0, **own}))


def after(num_arrivals, share=0.05, age_s=10.0):
    """One that has seen so many requests come."""
    part = PutOff(share, age_s)
    arrived = Arrived(seq("old", 1).request, 0.0)
    for _ in range(num_arrivals):
        part.on_event(arrived)
    return part


class PerSecond:
    """So many tokens a second, and what any step costs."""

    def __init__(self, tokens_per_s, fixed_s=0.0):
        self.tokens_per_s, self.fixed_s = tokens_per_s, fixed_s

    def price_s(self, one, num_pending):
        """Seconds of the last tokens of a prompt."""
        del one
        return num_pending / self.tokens_per_s


HUNDRED = PerSecond(100)
PENDING = Sequence.num_pending.fget


def test_the_longest_go_until_the_rest_is_in_time():
    """No more than it takes."""
    queue = [seq("a", 90), seq("b", 400), seq("c", 150), seq("d", 200)]
    assert sum(one.num_pending / 100 for one in queue) > AFTER_S
    assert after(1000).choose(queue, HUNDRED, PENDING, 1.0) == {"b", "d"}
    assert not after(1000).choose(queue[:1], HUNDRED, PENDING, 1.0)
    assert not after(1000, share=0.0).choose(queue, HUNDRED, PENDING, 1.0)


def test_a_slower_machine_puts_the_same_ones_off():
    """Where all steps take longer, so does the work from which on a queue counts as long."""
    queue = [seq("a", 90), seq("b", 400), seq("c", 150), seq("d", 200)]
    fixed_s = AFTER_S / AFTER_FIXED
    for slower in (1, 10, 1000):
        assert after(1000).choose(queue, PerSecond(100 / slower, slower * fixed_s), PENDING, 1.0) == {"b", "d"}
    assert not after(1000).choose(queue, PerSecond(100, 10 * fixed_s), PENDING, 1.0)


def test_no_more_than_the_share_of_all_requests_and_what_there_is_at_first():
    """An overload may come with the first requests; every twentieth later one is another that may wait."""
    queue = [seq(f"r{number}", 500 + number) for number in range(50)]
    for num_arrivals, num_earned in ((0, 0), (19, 0), (21, 1), (39, 1), (41, 2)):
        chosen = after(num_arrivals).choose(queue, HUNDRED, PENDING, 1.0)
        assert chosen == {f"r{49 - at}" for at in range(int(FIRST_CREDIT) + num_earned)}


def test_a_long_quiet_time_earns_a_bounded_number():
    """However many came before, a burst does not put everybody off."""
    queue = [seq(f"r{number}", 500 + number) for number in range(50)]
    assert len(after(100_000).choose(queue, HUNDRED, PENDING, 1.0)) == MOST_CREDIT


def test_it_ends():
    """Put off until it has waited `NUM_AGES` × `age_s`; what has left is forgotten."""
    part = after(1000)
    queue = [seq("a", 90), seq("b", 900)]
    assert part.choose(queue, HUNDRED, PENDING, 1.0) == {"b"}
    assert part.choose(queue, HUNDRED, PENDING, NUM_AGES * 10.0 - 1.0) == {"b"}
    assert not part.choose(queue, HUNDRED, PENDING, NUM_AGES * 10.0)
    part.on_event(Finished(queue[1].request, FinishReason.LENGTH, 4, 0, 2.0))
    assert not part.choose(queue[:1], HUNDRED, PENDING, 2.0)


def test_nobody_waits_for_another_tenant_a_lower_class_or_in_spite_of_a_promise():
    """Two tenants settle it by fairness; the more urgent and those with a deadline are left alone."""
    long, short = seq("long", 900, tenant="a"), seq("short", 90, tenant="b")
    assert not after(1000).choose([long, short], HUNDRED, PENDING, 1.0)
    urgent, other = seq("urgent", 900, priority=-1), seq("other", 300)
    assert after(1000).choose([urgent, other], HUNDRED, PENDING, 1.0) == {"other"}
    promised = seq("promised", 900, ttft_s=5.0)
    assert not after(1000).choose([promised], HUNDRED, PENDING, 1.0)


def test_of_equal_prompts_the_latest_are_put_off():
    """Who has waited longest starts."""
    queue = [seq(f"r{at}", 200, arrival_s=float(at)) for at in range(4)]
    assert after(0).choose(queue, HUNDRED, PENDING, 4.0) == {"r2", "r3"}
    assert [one.id for one in queue] == ["r0", "r1", "r2", "r3"]


def test_chosen_among_equals_it_still_goes_before_a_lower_class():
    """Who comes later with less urgency does not pass."""
    part = after(0)
    high, low = seq("high", 900), seq("low", 150, priority=5)
    assert part.choose([high], HUNDRED, PENDING, 1.0) == {"high"}
    assert not part.choose([high, low], HUNDRED, PENDING, 1.0)
    assert part.choose([high], HUNDRED, PENDING, 1.0) == {"high"}


def test_other_settings_earn_nothing_anew():
    """Who was put off stays so, and nobody more may be."""
    old, new = after(0), after(0, share=0.1)
    queue = [seq(f"r{number}", 500 + number) for number in range(9)]
    chosen = old.choose(queue, HUNDRED, PENDING, 1.0)
    new.adopt(old)
    assert new.choose(queue, HUNDRED, PENDING, 1.0) == chosen


def test_nothing_is_spent_on_a_class_that_goes_first_anyway():
    """While a lower one is put off, the higher ones are not: what is left is kept for those who can wait."""
    part = after(0)
    queue = [seq("low", 900, priority=1), *(seq(f"high{at}", 400) for at in range(6))]
    for _ in range(3):
        assert part.choose(queue, HUNDRED, PENDING, 1.0) == {"low"}
    assert part.choose([*queue, seq("low too", 500, priority=1)], HUNDRED, PENDING, 2.0) == {"low", "low too"}


def test_what_the_cache_holds_is_no_work():
    """A long prompt whose beginning is known costs what is behind it."""
    queue = [seq("known", 1500), seq("b", 400), seq("c", 150), seq("d", 200)]
    left = {"known": 50, "b": 400, "c": 150, "d": 200}
    assert after(1000).choose(queue, HUNDRED, lambda one: left[one.id], 1.0) == {"b", "d"}
