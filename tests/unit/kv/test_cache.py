"""KVCache: tables, sharing, copy-on-write, publishing, trimming, swapping, promises."""

import pytest

from headway.kv import HashedPrefixCache, Hit, KVCache, NoPrefixCache, RadixPrefixCache

SIZE = 4
TOKENS = list(range(100, 130))


def make(num_blocks=12, prefix=NoPrefixCache, num_host_blocks=0, size=SIZE):
    return KVCache(num_blocks, size, prefix() if prefix is NoPrefixCache else prefix(size), num_host_blocks)


@pytest.fixture(params=[HashedPrefixCache, RadixPrefixCache])
def kv(request):
    """A cache that finds prefixes, of either kind."""
    return make(prefix=request.param, num_host_blocks=12)


def compute(kv, seq_id, tokens, num_tokens=None, salt=""):
    """Admit a sequence with its hit, compute and publish its tokens (or the first `num_tokens`). Returns the hit."""
    hit = kv.match(tokens, salt)
    kv.admit(seq_id, hit)
    stop = len(tokens) if num_tokens is None else num_tokens
    kv.extend(seq_id, hit.num_tokens, stop)
    kv.publish(seq_id, tokens, stop, salt)
    return hit


def test_two_samples_of_one_prompt_as_in_the_paper():
    """ALGORITHMS §3 (f): prompt 6, two samples, blocks of 4; then a beam switch."""
    kv = make(size=4)
    compute(kv, "one", TOKENS[:6])
    kv.fork("one", "two")
    assert kv.block_table("one") == kv.block_table("two") == [0, 1]
    assert kv.pool.refs[:2] == [2, 2]
    # Decode 1: the first writer copies the shared tail, the last one stays in place.
    assert kv.extend("one", 6, 7) == [(1, 2)]
    assert kv.extend("two", 6, 7) == []
    assert (kv.block_table("one"), kv.block_table("two")) == ([0, 2], [0, 1])
    assert kv.num_free == 12 - 3
    # Decode 2 fills the tails, decode 3 begins a block each: 5 blocks, 6 without sharing.
    assert kv.extend("one", 7, 8) + kv.extend("two", 7, 8) + kv.extend("one", 8, 9) + kv.extend("two", 8, 9) == []
    assert (kv.block_table("one"), kv.block_table("two")) == ([0, 2, 3], [0, 1, 4])
    assert kv.num_free == 12 - 5
    # Both survivors come from the first: the second leaves its blocks and forks anew.
    kv.release("two")
    kv.fork("one", "two")
    assert [kv.pool.refs[block] for block in (0, 1, 2, 3, 4)] == [2, 0, 2, 2, 0]
    assert kv.extend("one", 9, 10) == [(3, 5)]
    assert kv.stats.num_copied == 2
    kv.check()


def test_a_full_shared_block_is_not_copied():
    """A write that begins at a block's border touches no shared block."""
    kv = make()
    compute(kv, "a", TOKENS[:8])
    kv.fork("a", "b")
    assert kv.extend("a", 8, 9) == []
    assert kv.extend("b", 8, 9) == []
    assert kv.num_free == 12 - 4


def test_three_forks_make_two_copies():
    """Each writer but the last gets a copy; a fork that goes first leaves the others fewer."""
    kv = make()
    compute(kv, "a", TOKENS[:2])
    kv.fork("a", "b")
    kv.fork("a", "c")
    assert [len(kv.extend(name, 2, 3)) for name in "abc"] == [1, 1, 0]
    kv.check()


@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE])
def test_a_full_hit_leaves_a_token_to_compute(kv, length):
    """The same prompt three times: at least one token is computed, and no shared block is written to."""
    prompt = TOKENS[:length]
    compute(kv, "first", prompt)
    for name in ("second", "third"):
        hit = compute(kv, name, prompt)
        assert hit.num_tokens == (length - 1) // SIZE * SIZE
        assert kv.block_table(name)[: len(hit.block_ids)] == kv.block_table("first")[: len(hit.block_ids)]
        kv.check()
    assert kv.stats.num_copied == 0


def test_a_hit_shares_blocks_in_use_and_pins_idle_ones(kv):
    """Pinned blocks leave the free count at once, those in use cost nothing."""
    compute(kv, "a", TOKENS[:9])
    assert kv.num_free == 12 - 3
    compute(kv, "b", TOKENS[:9])
    assert kv.num_free == 12 - 4
    kv.release("a")
    kv.release("b")
    assert (kv.num_free, kv.num_cached) == (12, 2)
    hit = kv.match(TOKENS[:9], "")
    kv.admit("c", hit)
    assert (hit.num_tokens, kv.num_free, kv.num_cached) == (8, 10, 0)
    assert kv.stats.num_hit_tokens == 16


def test_a_released_prefix_is_evicted_only_when_blocks_run_out(kv):
    """Free blocks go first, then the least recently used tails: of a tree whole leaves."""
    compute(kv, "a", TOKENS[:8])
    compute(kv, "b", list(range(8)))
    kv.release("a")
    kv.release("b")
    assert kv.num_cached == 4
    kv.admit("c", Hit.EMPTY)
    kv.extend("c", 0, 8 * SIZE)
    assert kv.stats.num_evicted == 0
    kv.extend("c", 8 * SIZE, 9 * SIZE)
    num_evicted = 2 if isinstance(kv.prefix, RadixPrefixCache) else 1
    assert kv.stats.num_evicted == num_evicted
    assert kv.match(TOKENS[:9], "").num_tokens == 8 - num_evicted * SIZE
    assert kv.match([*range(8), 0], "").num_tokens == 8
    kv.check()


def test_an_evicted_block_is_found_no_more(kv):
    """A hit is looked up anew at admission; an old one is refused."""
    compute(kv, "a", TOKENS[:9])
    kv.release("a")
    stale = kv.match(TOKENS[:9], "")
    kv.admit("b", Hit.EMPTY)
    kv.extend("b", 0, 12 * SIZE)
    assert kv.match(TOKENS[:9], "") is Hit.EMPTY
    with pytest.raises(AssertionError, match="c: the hit is stale"):
        kv.admit("c", stale)


@pytest.mark.parametrize("num_computed", [0, 1, 3, 4, 5, 8, 9])
def test_only_computed_whole_blocks_are_published(kv, num_computed):
    """A prefill that ends early leaves in the cache what it computed, and its other blocks are just free."""
    kv.admit("a", Hit.EMPTY)
    kv.extend("a", 0, 9)
    kv.publish("a", TOKENS, num_computed, "")
    kv.release("a")
    kv.check()
    assert kv.match(TOKENS, "").num_tokens == num_computed // SIZE * SIZE
    assert kv.num_cached == num_computed // SIZE
    assert kv.num_free == 12


def test_a_salt_keeps_blocks_apart(kv):
    """Other salts find nothing; the same salt does, so the test would notice a cache that is off."""
    compute(kv, "a", TOKENS[:9], salt="mine")
    assert kv.match(TOKENS[:9], "mine").num_tokens == 8
    assert kv.match(TOKENS[:9], "") is Hit.EMPTY
    assert kv.match(TOKENS[:9], "theirs") is Hit.EMPTY


def test_radix_replaces_duplicates_and_hashed_keeps_them():
    """Two sequences that computed equal blocks side by side end up sharing in the tree."""
    for prefix, num_used in ((RadixPrefixCache, 4), (HashedPrefixCache, 6)):
        kv = make(prefix=prefix)
        for name in "ab":
            kv.admit(name, Hit.EMPTY)
            kv.extend(name, 0, 9)
        for name in "ab":
            kv.publish(name, TOKENS, 9, "")
        assert kv.num_blocks - kv.num_free == num_used
        kv.check()
        kv.release("a")
        kv.check()
        assert kv.match(TOKENS[:9], "").num_tokens == 8


def test_radix_wakes_an_idle_duplicate():
    """The block that is there already may be idle by now: it is in use again, and the own one is free."""
    kv = make(prefix=RadixPrefixCache)
    for name in "ab":
        kv.admit(name, Hit.EMPTY)
        kv.extend(name, 0, 9)
    kv.publish("a", TOKENS, 9, "")
    table = list(kv.block_table("a"))
    kv.release("a")
    kv.publish("b", TOKENS, 9, "")
    assert kv.block_table("b")[:2] == table[:2]
    assert (kv.num_cached, kv.num_free) == (0, 9)
    kv.check()


def test_publishing_goes_on_after_fork_trim_and_swap(kv):
    """However a sequence came to its tokens, its whole blocks are found behind it."""
    compute(kv, "a", TOKENS[:10])
    kv.fork("a", "b")
    kv.extend("b", 10, 13)
    kv.publish("b", TOKENS, 13, "")
    assert kv.match(TOKENS[:13], "").num_tokens == 12
    kv.release("a")
    kv.trim("b", 5)
    kv.extend("b", 5, 17)
    kv.publish("b", TOKENS, 17, "")
    kv.check()
    assert kv.match(TOKENS[:17], "").num_tokens == 16
    kv.swap_out("b")
    kv.forget_idle()
    kv.swap_in("b")
    assert kv.match(TOKENS[:17], "") is Hit.EMPTY
    kv.extend("b", 17, 18)
    kv.publish("b", TOKENS, 18, "")
    kv.check()
    assert kv.match(TOKENS[:18], "").num_tokens == 16


def test_writing_into_a_published_block_forgets_it(kv):
    """After a trim into a cached block its content may change: it is not found while that happens."""
    compute(kv, "a", TOKENS[:12])
    kv.trim("a", 6)
    assert kv.num_cached == 1
    assert kv.extend("a", 6, 7) == []
    assert kv.match(TOKENS, "").num_tokens == 4
    kv.check()


def test_a_published_block_that_others_share_is_copied_before_writing(kv):
    """A trim does not let a sequence write where another reads."""
    compute(kv, "a", TOKENS[:12])
    compute(kv, "b", TOKENS[:13])
    kv.trim("a", 6)
    ((old, new),) = kv.extend("a", 6, 7)
    assert kv.block_table("b")[1] == old
    assert kv.block_table("a")[1] == new
    assert kv.match(TOKENS[:13], "").num_tokens == 12
    kv.check()


def test_publishing_costs_what_is_new():
    """The cache is handed the tail alone: a long sequence does not pay again for its beginning."""

    class Counting(HashedPrefixCache):
        num_links = 0

        def _link(self, parent, tokens):
            self.num_links += 1
            return super()._link(parent, tokens)

    kv = make(200, Counting)
    tokens = list(range(500))
    compute(kv, "a", tokens, 400)
    before = kv.prefix.num_links
    for stop in range(401, 501):
        kv.extend("a", stop - 1, stop)
        kv.publish("a", tokens, stop, "")
    assert kv.prefix.num_links - before == 100 // SIZE


def test_trim_keeps_the_blocks_that_the_tokens_need():
    """A partial block is kept; a trim to nothing keeps the sequence with an empty table."""
    kv = make()
    compute(kv, "a", TOKENS[:14])
    kv.trim("a", 9)
    assert kv.block_table("a") == [0, 1, 2]
    kv.trim("a", 12)
    assert kv.num_held("a") == 3
    kv.trim("a", 0)
    assert (kv.num_held("a"), kv.holds("a"), kv.num_free) == (0, True, 12)
    kv.extend("a", 0, 1)
    kv.check()


def test_swapping_moves_all_blocks_and_frees_them():
    """Pairs name every block in order; the way back goes into fresh blocks."""
    kv = make(num_host_blocks=3)
    compute(kv, "a", TOKENS[:9])
    assert kv.can_swap_out("a")
    assert kv.swap_out("a") == [(0, 0), (1, 1), (2, 2)]
    assert (kv.num_free, kv.num_host_free, kv.num_held("a"), kv.holds("a")) == (12, 0, 0, True)
    compute(kv, "b", TOKENS[:5])
    assert not kv.can_swap_out("b")
    assert kv.swap_in("a") == [(0, 5), (1, 6), (2, 7)]
    assert (kv.num_host_free, kv.block_table("a")) == (3, [5, 6, 7])
    assert (kv.stats.num_swapped_out, kv.stats.num_swapped_in) == (3, 3)
    kv.check()


def test_a_gang_shares_in_the_host_tier_too():
    """Forks that leave together are copied once where they share, and come back sharing."""
    kv = make(num_host_blocks=4)
    compute(kv, "a", TOKENS[:6])
    kv.fork("a", "b")
    kv.extend("a", 6, 7)
    assert len(kv.swap_out("a", "b")) == 3
    assert kv.num_host_free == 1
    kv.check()
    pairs = kv.swap_in("b", "a")
    assert len(pairs) == 3
    assert kv.block_table("a")[0] == kv.block_table("b")[0]
    assert kv.block_table("a")[1] != kv.block_table("b")[1]
    assert kv.num_host_free == 4
    kv.check()


def test_forks_that_share_a_block_change_to_the_cached_ones_together():
    """One fork finds its first blocks in the tree again and adds the shared third: the other must hold those, too."""
    kv = make(prefix=RadixPrefixCache, num_host_blocks=12)
    compute(kv, "a", TOKENS[:13])
    kv.fork("a", "b")
    kv.swap_out("a", "b")
    kv.match(TOKENS[:9], "")  # the first two blocks are recent now
    kv.admit("x", Hit.EMPTY)
    kv.extend("x", 0, 40)  # evicts the third block alone
    kv.release("x")
    assert kv.match(TOKENS[:13], "").num_tokens == 8
    kv.swap_in("a", "b")
    kv.publish("a", TOKENS, 13, "")
    kv.check()
    assert kv.block_table("a") == kv.block_table("b")
    kv.release("a")
    kv.check()


def test_what_a_sequence_alone_wrote_can_leave_the_cache(kv):
    """Behind its first tokens nothing is found any more; what somebody else holds, too, stays."""
    compute(kv, "a", TOKENS[:16])
    compute(kv, "b", TOKENS[:13])
    kv.unpublish("a", 6)
    assert kv.match(TOKENS, "").num_tokens == 12
    kv.release("b")
    kv.unpublish("a", 6)
    kv.check()
    kv.release("a")
    assert (kv.match(TOKENS, "").num_tokens, kv.num_cached, kv.num_free) == (4, 1, 12)
    kv.check()


def test_a_block_that_stays_in_use_is_copied_out_as_well(kv):
    """What a swapped sequence shared with a running one is in both places."""
    compute(kv, "a", TOKENS[:9])
    compute(kv, "b", TOKENS[:9])
    shared = kv.block_table("a")[:2]
    assert [device for device, _ in kv.swap_out("b")][:2] == shared
    assert kv.block_table("a")[:2] == shared
    kv.check()


def test_releasing_a_swapped_sequence_frees_the_host():
    """An abort reaches sequences wherever they are."""
    kv = make(num_host_blocks=None)
    compute(kv, "a", TOKENS[:9])
    kv.swap_out("a")
    kv.release("a")
    assert not kv.holds("a")
    assert kv.host.num_used == 0
    kv.check()


def test_a_promise_counts_as_taken():
    """Promised blocks are not free for others, and are the sequence's when it comes for them."""
    kv = make(num_blocks=6)
    compute(kv, "a", TOKENS[:4])
    kv.reserve("a", 4)
    assert kv.num_free == 2
    kv.reserve("a", 2)
    assert kv.num_free == 2
    kv.extend("a", 4, 13)
    assert kv.num_free == 2
    kv.extend("a", 13, 17)
    assert kv.num_free == 1
    kv.release("a")
    assert kv.num_free == 6
    kv.check()


def test_promised_blocks_are_nobody_elses():
    """Taking them is our mistake, not a matter of luck."""
    kv = make(num_blocks=6)
    compute(kv, "a", TOKENS[:4])
    kv.reserve("a", 4)
    kv.admit("b", Hit.EMPTY)
    with pytest.raises(AssertionError, match="b was extended into blocks that are promised to others"):
        kv.extend("b", 0, 12)


@pytest.mark.parametrize("end", ["trim", "swap_out", "release"])
def test_a_promise_ends_with_the_stay(end):
    """Whoever leaves the device, or is cut back, is owed nothing."""
    kv = make(num_host_blocks=None)
    compute(kv, "a", TOKENS[:4])
    kv.reserve("a", 9)
    assert kv.num_free == 3
    kv.trim("a", 4) if end == "trim" else getattr(kv, end)("a")
    assert kv.num_free == (11 if end == "trim" else 12)
    kv.check()


def test_a_promise_is_divided_among_forks():
    """Each gets an even share of what the parent was promised for all."""
    kv = make()
    compute(kv, "a", TOKENS[:4])
    kv.reserve("a", 9)
    kv.fork("a", "b")
    kv.fork("a", "c")
    kv.split_promise(["a", "b", "c"])
    assert [kv.tables[name].num_promised for name in "abc"] == [3, 3, 3]
    assert kv.num_free == 12 - 1 - 3 * 2
    kv.check()


def test_blocks_held_alone_and_together():
    """What leaving would free, and what a gang holds, wherever it is."""
    kv = make(num_host_blocks=None)
    compute(kv, "a", TOKENS[:6])
    kv.fork("a", "b")
    kv.extend("b", 6, 9)
    assert [kv.num_private(name) for name in ("a", "b", "nobody")] == [1, 2, 0]
    assert kv.num_shared(["a", "b"]) == 4
    kv.swap_out("a", "b")
    assert [kv.num_private(name) for name in ("a", "b")] == [0, 0]
    assert kv.num_shared(["a", "b"]) == 4
    assert kv.num_shared([]) == 0


def test_emptying_the_cache_keeps_what_is_used(kv):
    """Idle blocks become free; a running sequence's stay, and can still be hit."""
    compute(kv, "a", TOKENS[:9])
    compute(kv, "b", list(range(9)))
    kv.release("b")
    kv.forget_idle()
    assert (kv.num_cached, kv.num_free) == (0, 9)
    assert kv.match(list(range(9)), "") is Hit.EMPTY
    assert kv.match(TOKENS[:9], "").num_tokens == 8
    assert kv.stats.num_evicted == 2


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda kv: kv.admit("a", Hit.EMPTY), "a has blocks already"),
        (lambda kv: kv.fork("a", "b"), "b has blocks already"),
        (lambda kv: kv.extend("a", 13, 14), "a: cannot write from 13"),
        (lambda kv: kv.extend("a", 3, 5), "a: cannot write from 3"),
        (lambda kv: kv.extend("a", 9, 99), "blocks wanted"),
        (lambda kv: kv.reserve("a", 99), "a: 99 blocks promised"),
        (lambda kv: kv.swap_out("a", "b"), "host blocks wanted"),
    ],
)
def test_mistakes_are_named(mistake, message):
    """A caller that breaks the rules is told who and why."""
    kv = make(prefix=HashedPrefixCache, num_host_blocks=1)
    compute(kv, "a", TOKENS[:9])
    compute(kv, "b", TOKENS[9:14])
    with pytest.raises(AssertionError, match=message):
        mistake(kv)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda kv: kv.tables["a"].block_ids.pop(), "block 2: 1 references, but in 0 tables"),
        (lambda kv: kv.tables.pop("b"), "block 3: 1 references"),
        (lambda kv: kv.prefix._digests.update({11: b"x"}) or kv.prefix._blocks.update({b"x": 11}), "free and cached"),
        (lambda kv: kv.pool.take(1) and kv.pool.unref([5]), "block 5 is lost"),
        (lambda kv: setattr(kv, "_num_owed", 3), "promises do not add up"),
        (lambda kv: kv.swapped.update(a=[]), "on the device and in the host tier"),
        (lambda kv: kv.swapped.update(c=[0]), "host tier: holders and tables disagree"),
        (lambda kv: setattr(kv.tables["a"].trail, "num_blocks", 9), "a published more than it holds"),
    ],
)
def test_check_names_the_equation_that_fails(damage, message):
    """Damaged books are found."""
    kv = make(prefix=HashedPrefixCache)
    compute(kv, "a", TOKENS[:9])
    compute(kv, "b", TOKENS[9:14])
    kv.check()
    damage(kv)
    with pytest.raises(AssertionError, match=message):
        kv.check()
