"""Ledger: what a planner is told in the cases that matter; tests/property/test_kv_ledger.py has the rest."""

import pytest

from headway.core import Request, SamplingParams, Sequence
from headway.kv import HashedPrefixCache, Hit, KVCache, Ledger, NoPrefixCache, RadixPrefixCache

SIZE = 4


def sequence(name, num_tokens, *, first=0, **words):
    tokens = tuple(range(first, first + num_tokens))
    return Sequence(Request(id=name, prompt_ids=tokens, max_output=99, **words))


def make(num_blocks=8, prefix=NoPrefixCache, num_host_blocks=0):
    return KVCache(num_blocks, SIZE, prefix() if prefix is NoPrefixCache else prefix(SIZE), num_host_blocks)


def running(kv, seq, num_computed=None):
    """Admit a sequence, compute all its tokens (or `num_computed`), publish them, and give it one more."""
    hit = kv.match(seq.token_ids, seq.request.cache_salt)
    kv.admit(seq.id, hit)
    seq.num_computed = seq.num_tokens if num_computed is None else num_computed
    kv.extend(seq.id, hit.num_tokens, seq.num_computed)
    kv.publish(seq.id, seq.token_ids, seq.num_computed, seq.request.cache_salt)
    seq.token_ids.append(7)
    return seq


def forked(kv, parent, name):
    child = Sequence(parent.request, id=name, token_ids=list(parent.token_ids), num_computed=parent.num_computed)
    kv.fork(parent.id, name)
    return child


def test_planning_touches_nothing():
    """Whatever is asked, the cache is as before."""
    kv = make(prefix=RadixPrefixCache, num_host_blocks=None)
    a, b = running(kv, sequence("a", 9)), sequence("b", 9)
    before = kv.num_free, list(kv.pool.refs), list(kv.block_table("a"))
    ledger = Ledger(kv)
    ledger.take(a, 1)
    ledger.take(b, 1, reserve=20)
    ledger.give_back(a, 4)
    ledger.give_back(b)
    ledger.give_back_swapped(a)
    assert (kv.num_free, list(kv.pool.refs), list(kv.block_table("a"))) == before
    kv.check()


def test_a_decode_costs_a_block_when_its_last_is_full():
    """Within a block a token is free of charge; the one that begins a block takes it."""
    kv = make()
    a = running(kv, sequence("a", 7))
    ledger = Ledger(kv)
    assert ledger.take(a, 1)
    assert (ledger.num_free, ledger.num_held(a), ledger.taken(a)) == (6, 2, 1)
    assert ledger.take(a, 1)
    assert (ledger.num_free, ledger.num_held(a), ledger.taken(a), ledger.num_taken) == (5, 3, 2, 2)


def test_decodes_are_taken_together_up_to_the_first_that_needs_more():
    """Plain decodes are taken as if one after another; who needs a block, a copy or more tokens is left to `take`."""
    kv = make(num_blocks=32, prefix=RadixPrefixCache)
    a, b = running(kv, sequence("a", 6)), running(kv, sequence("b", 9, first=100))
    full, parent = running(kv, sequence("full", 8, first=200)), running(kv, sequence("parent", 6, first=300))
    child, prefill = forked(kv, parent, "child"), running(kv, sequence("prefill", 7, first=400), 5)
    cut, idle = running(kv, sequence("cut", 8, first=500), 8), running(kv, sequence("idle", 6, first=600))
    kv.trim("cut", 5)
    cut.num_computed = cut.num_tokens - 1
    idle.num_computed += 1
    odd = [full, parent, child, prefill, cut, idle, sequence("new", 1, first=700)]
    together, one_by_one = Ledger(kv), Ledger(kv)
    assert together.take_decodes([a, b, *odd]) == 2
    assert all(one_by_one.take(seq, 1) for seq in (a, b))
    told = [(ledger.num_free, ledger.num_taken, dict(ledger.takes)) for ledger in (together, one_by_one)]
    assert told[0] == told[1]
    assert not together.movers
    assert [together.take_decodes([seq, a]) for seq in odd] == [0] * len(odd)
    assert together.take_decodes([a]) == 0, "it was taken before"
    together.give_back(b)
    assert together.take_decodes([b]) == 0, "it holds nothing any more"


def test_what_does_not_fit_changes_nothing():
    """A refused take leaves earlier ones, and the pins of a hit go with it."""
    kv = make(num_blocks=5, prefix=HashedPrefixCache)
    running(kv, sequence("old", 8))
    kv.release("old")
    a = running(kv, sequence("a", 9, first=50))
    b = sequence("b", 20)
    ledger = Ledger(kv)
    assert ledger.num_free == 2
    assert not ledger.take(b, 12)
    assert (ledger.num_free, ledger.num_held(b), ledger.taken(b), ledger.num_taken) == (2, 0, 0, 0)
    assert ledger.take(a, 1)
    assert not ledger.take(a, 99)
    assert (ledger.num_free, ledger.taken(a)) == (2, 1)


def test_a_hit_is_pinned_from_then_on():
    """Idle blocks of a hit leave the free count; blocks that others use cost nothing."""
    kv = make(prefix=HashedPrefixCache)
    a = running(kv, sequence("a", 9))
    b, c = sequence("b", 9), sequence("c", 9)
    ledger = Ledger(kv)
    assert ledger.num_pending(b) == 1
    assert ledger.take(b, 1)
    assert ledger.num_free == 8 - 3 - 1
    ledger.give_back(a)
    assert ledger.num_free == 8 - 3
    assert ledger.take(c, 1)
    assert ledger.num_free == 8 - 4
    ledger.give_back(b)
    ledger.give_back(c)
    assert ledger.num_free == 8


def test_a_preempted_sequence_may_be_taken_again_in_the_same_pass():
    """Then it is an admission: it finds what it published itself, and the rest is to compute."""
    kv = make(prefix=RadixPrefixCache)
    a = running(kv, sequence("a", 9))
    ledger = Ledger(kv)
    assert ledger.take(a, 1)
    assert ledger.num_pending(a) == 1
    ledger.give_back(a)
    assert (ledger.num_free, ledger.num_held(a), ledger.taken(a), ledger.num_pending(a)) == (8, 0, 0, 2)
    assert ledger.take(a, 2)
    assert ledger.num_free == 5
    ledger.give_back(a)
    ledger.give_back(a)
    assert ledger.num_free == 8


def test_a_cut_sequence_keeps_its_first_tokens():
    """Blocks behind the kept tokens are free, what is kept need not be computed, and takes go on from there."""
    kv = make()
    a = running(kv, sequence("a", 14))
    ledger = Ledger(kv)
    ledger.take(a, 1)
    ledger.give_back(a, 6)
    assert (ledger.num_free, ledger.num_held(a), ledger.num_pending(a), ledger.taken(a)) == (6, 2, 9, 0)
    assert ledger.take(a, 9)
    assert (ledger.num_free, ledger.num_held(a)) == (4, 4)
    ledger.give_back(a, 0)
    assert (ledger.num_free, ledger.num_held(a)) == (8, 0)


def test_the_last_writer_of_a_shared_block_needs_no_copy():
    """Forks: each writer but the last costs a copy, however often it writes; a reader that stays costs one more."""
    kv = make()
    a = running(kv, sequence("a", 6))
    b, c = forked(kv, a, "b"), forked(kv, a, "c")
    for seq in (a, b, c):
        seq.token_ids.append(8)
    ledger = Ledger(kv)
    assert ledger.take(a, 1)
    assert ledger.take(a, 1)
    assert ledger.num_free == 8 - 3
    assert ledger.take(b, 1)
    assert ledger.num_free == 8 - 4
    assert ledger.take(c, 1)
    assert ledger.num_free == 8 - 4
    ledger.give_back(a, 6)  # it reads on, so that the last writer needs a copy after all
    assert ledger.num_free == 8 - 4
    ledger.give_back(a)
    assert ledger.num_free == 8 - 3


def test_a_reservation_holds_room_for_all_to_come():
    """The promise counts as taken, is listed for the cache, and is there when the tokens come."""
    kv = make()
    a = sequence("a", 6)
    ledger = Ledger(kv)
    assert not ledger.take(a, 6, reserve=33)
    assert ledger.take(a, 6, reserve=20)
    assert (ledger.num_free, ledger.num_held(a), ledger.reservations()) == (3, 2, {"a": 5})
    kv.admit("a", Hit.EMPTY)
    kv.reserve("a", 5)
    kv.extend("a", 0, 6)
    a.num_computed = 6
    a.token_ids += [1] * 14
    later = Ledger(kv)
    assert later.num_free == 3
    assert later.take(a, 14)
    assert (later.num_free, later.num_held(a)) == (3, 5)
    later.give_back(a)
    assert later.num_free == 8


def test_who_wants_scores_of_the_prompt_computes_it_all():
    """A request with prompt log probabilities never takes a hit; its twin without them does."""
    kv = make(prefix=HashedPrefixCache)
    running(kv, sequence("a", 9))
    ledger = Ledger(kv)
    scored = sequence("b", 9, params=SamplingParams(prompt_logprobs=0))
    assert ledger.hit(scored) is Hit.EMPTY
    assert ledger.num_pending(scored) == 9
    assert ledger.hit(sequence("c", 9)).num_tokens == 8
    assert ledger.hit(sequence("d", 9, cache_salt="other")) is Hit.EMPTY


def test_a_hit_is_looked_up_once_per_pass():
    """A policy that sorts by hits and one that asks again pay for one look each."""

    class Counting(HashedPrefixCache):
        num_matches = 0

        def match(self, tokens, salt, owner=None):
            self.num_matches += 1
            return super().match(tokens, salt, owner)

    kv = make(prefix=Counting)
    ledger, a = Ledger(kv), sequence("a", 9)
    for _ in range(3):
        ledger.hit(a)
        ledger.num_pending(a)
        ledger.take(a, 1)
        ledger.give_back(a)
    assert kv.prefix.num_matches == 1


def test_swapping_needs_room_in_the_host_tier():
    """All of a gang or none; what is given back another way makes room again."""
    kv = make(num_host_blocks=3)
    a = running(kv, sequence("a", 6))
    b = forked(kv, a, "b")
    c = running(kv, sequence("c", 6, first=50))
    ledger = Ledger(kv)
    assert not ledger.give_back_swapped(a, b, c)
    assert ledger.num_free == 4
    assert ledger.give_back_swapped(a, b)
    assert ledger.num_free == 6
    assert not ledger.give_back_swapped(c)
    assert not ledger.take(a, 1)
    ledger.give_back(a)
    assert not ledger.give_back_swapped(c)
    ledger.give_back(b)
    assert ledger.give_back_swapped(c)
    assert ledger.num_free == 8


def test_a_sequence_given_back_cannot_be_swapped():
    """Its blocks are promised to others already."""
    kv = make(num_host_blocks=None)
    a = running(kv, sequence("a", 6))
    ledger = Ledger(kv)
    ledger.give_back(a)
    assert not ledger.give_back_swapped(a)
    assert ledger.num_free == 8


def test_a_swapped_sequence_needs_all_its_blocks_back():
    """And room for its next tokens; refused or given back, it stays where it is."""
    kv = make(num_blocks=3, num_host_blocks=None)
    a = running(kv, sequence("a", 8))
    kv.swap_out("a")
    b = running(kv, sequence("b", 1, first=50))
    ledger = Ledger(kv)
    assert (kv.num_shared(["a"]), ledger.num_pending(a)) == (2, 1)
    assert not ledger.take_swap_in(a, 1)
    assert (ledger.num_free, ledger.taken(a)) == (2, 0)
    ledger.give_back(b)
    assert ledger.take_swap_in(a, 1)
    assert (ledger.num_free, ledger.num_held(a), ledger.taken(a)) == (0, 3, 1)
    assert not ledger.take_swap_in(a, 4)
    assert ledger.take_swap_in(a, 3)
    assert ledger.taken(a) == 4
    ledger.give_back(a)
    assert (ledger.num_free, ledger.num_held(a)) == (3, 0)


def test_forks_come_back_sharing():
    """Two that left together cost their common blocks once, and a copy when both write."""
    kv = make(num_host_blocks=None)
    a = running(kv, sequence("a", 6))
    b = forked(kv, a, "b")
    kv.swap_out("a", "b")
    ledger = Ledger(kv)
    assert kv.num_shared(["a", "b"]) == 2
    assert ledger.take_swap_in(a, 1)
    assert ledger.num_free == 6
    assert ledger.take_swap_in(b, 1)
    assert ledger.num_free == 5
    kv.swap_in("a", "b")
    assert len(kv.extend("a", 6, 7) + kv.extend("b", 6, 7)) == 1
    assert kv.num_free == 5


def test_a_scratch_ledger_leaves_no_trace():
    """It knows what was decided so far, and what it decides stays its own."""
    kv = make()
    a, b = running(kv, sequence("a", 6)), sequence("b", 9)
    ledger = Ledger(kv)
    ledger.take(b, 9)
    scratch = ledger.scratch()
    assert scratch.num_free == ledger.num_free == 3
    scratch.give_back(b)
    scratch.give_back(a)
    assert (scratch.num_free, scratch.num_taken) == (8, 0)
    assert (ledger.num_free, ledger.num_taken, ledger.taken(b)) == (3, 9, 9)


def test_a_swapped_sequence_is_never_admitted():
    """Its KV lies in the host tier; taking it as if it waited is our mistake."""
    kv = make(num_host_blocks=None)
    a = running(kv, sequence("a", 6))
    kv.swap_out("a")
    with pytest.raises(AssertionError, match="a is swapped out: swap it in"):
        Ledger(kv).take(a, 1)


def test_only_moves_of_blocks_need_carrying_out():
    """A decode into a block of its own needs nothing from the cache; a new block, a copy or an admission does."""
    kv = make(num_blocks=9, prefix=HashedPrefixCache)
    a, b = running(kv, sequence("a", 6)), running(kv, sequence("b", 8, first=50))
    c, d = running(kv, sequence("c", 6, first=90)), sequence("d", 5)
    forked(kv, c, "e")
    ledger = Ledger(kv)
    assert all(ledger.take(seq, 1) for seq in (a, b, c, d))
    assert [seq.id in ledger.movers for seq in (a, b, c, d)] == [False, True, True, True]


def test_a_ledger_says_whether_prefixes_are_found():
    """Waiting for another sequence's blocks pays only where there is a prefix cache."""
    assert Ledger(make(prefix=RadixPrefixCache)).finds_prefixes
    assert not Ledger(make()).finds_prefixes
