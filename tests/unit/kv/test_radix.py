"""RadixPrefixCache: the shape of the tree and the order of eviction (ALGORITHMS §9)."""

import pytest

from headway.kv import Hit, RadixPrefixCache
from headway.kv.prefix import Trail


def shape(cache, salt=""):
    """The tree as nested pairs of (tokens of a node, its children)."""

    def below(node):
        return sorted(
            ([token for key in child.keys for token in key], below(child)) for child in node.children.values()
        )

    root = cache._roots.get(salt)
    return below(root) if root else []


def run(cache, tokens, fresh):
    """One request: hit all but the last token, insert with fresh blocks for the rest. Returns its table."""
    hit = cache.match(tokens[:-1], "")
    idle = [block for block in hit.block_ids if block in cache._idle]
    cache.use(idle)
    return cache.insert(tokens, [*hit.block_ids, *fresh], "")


@pytest.fixture
def grown():
    """ALGORITHMS §9 example (a), one token per block: three requests come, compute and end, in turn."""
    cache = RadixPrefixCache(1)
    cache.idle(run(cache, [1, 2, 3, 4, 5, 6], [101, 102, 103, 104, 105, 106])[::-1])  # 7 has no KV
    assert cache.match([1, 2, 3, 8, 9], "").num_tokens == 3
    cache.idle(run(cache, [1, 2, 3, 8, 9], [108, 109])[::-1])
    assert shape(cache) == [([1, 2, 3], [([4, 5, 6], []), ([8, 9], [])])]
    assert cache.match([1, 2, 3, 4, 5, 6, 7], "").num_tokens == 6
    cache.idle(run(cache, [1, 2, 3, 4, 5, 6, 7, 11], [107, 111])[::-1])
    return cache


def test_paths_split_where_they_part(grown):
    """Node [7 11] hangs under [4 5 6], beside nothing; [8 9] is the other leaf."""
    assert shape(grown) == [([1, 2, 3], [([4, 5, 6], [([7, 11], [])]), ([8, 9], [])])]
    grown.check()


def test_leaves_go_before_what_they_hang_on(grown):
    """Three are wanted: the older leaf [8 9] goes, and [7 11], whole; then [4 5 6], which has become a leaf."""
    assert grown.evict(3) == [109, 108, 111, 107]
    assert shape(grown) == [([1, 2, 3], [([4, 5, 6], [])])]
    assert grown.evict(1) == [106, 105, 104]
    assert grown.evict(9) == [103, 102, 101]
    assert shape(grown) == []
    grown.check()


def test_asking_how_much_is_known_changes_nothing(grown):
    """The same answer as a look-up's, but the oldest leaf stays the first to go, and no node is parted."""
    before = shape(grown)
    assert grown.num_known([1, 2, 3, 8, 7], "") == 4
    assert grown.num_known([1, 2, 3, 8], "other") == 0
    assert shape(grown) == before
    assert grown.evict(1) == [109, 108]


def test_looking_parts_what_was_found_from_the_rest(grown):
    """[1 2 3 4] is looked up: it becomes recent, and of [4 5 6] the rest goes without it."""
    assert grown.match([1, 2, 3, 4, 9], "") == Hit(4, (101, 102, 103, 104))
    assert shape(grown) == [([1, 2, 3], [([4], [([5, 6], [([7, 11], [])])]), ([8, 9], [])])]
    assert grown.evict(5) == [109, 108, 111, 107, 106, 105]
    assert grown.match([1, 2, 3, 4, 9], "") == Hit(4, (101, 102, 103, 104))
    grown.check()


def test_a_leaf_in_use_at_its_front_loses_the_rest():
    """Who let go of a tail keeps what is before it."""
    cache = RadixPrefixCache(1)
    cache.insert([1, 2, 3], [1, 2, 3], "")
    cache.idle([3, 2])
    assert cache.evict(1) == [3, 2]
    assert cache.match([1, 2, 3], "") == Hit(1, (1,))
    cache.check()


def test_a_used_leaf_protects_its_path(grown):
    """While somebody uses [8 9], nothing above it goes; the other branch does."""
    grown.use([101, 102, 103, 108, 109])
    assert grown.evict(99) == [111, 107, 106, 105, 104]
    assert shape(grown) == [([1, 2, 3], [([8, 9], [])])]
    assert grown.num_idle == 0


def test_an_equal_prefix_is_stored_once():
    """Whoever computed the same blocks side by side is told to change to those already there."""
    cache = RadixPrefixCache(2)
    assert cache.insert([1, 2, 3, 4], [0, 1], "") == [0, 1]
    assert cache.insert([1, 2, 3, 4, 5, 6], [7, 8, 9], "") == [0, 1, 9]
    assert not cache.holds(7)
    assert shape(cache) == [([1, 2, 3, 4], [([5, 6], [])])]


def test_a_growing_sequence_is_one_node():
    """Who made a leaf of its output extends it; others get a child, and then the maker goes on in one of its own."""
    cache = RadixPrefixCache(1)
    mine, other = Trail(), Trail()
    cache.insert([1, 2, 3, 4, 5], [1, 2], "", mine)
    cache.insert([1, 2, 3, 4, 5], [1, 2, 3], "", mine)
    assert shape(cache) == [([1, 2, 3], [])]
    cache.insert([1, 2, 3, 9], [1, 2, 3, 9], "", other)
    assert shape(cache) == [([1, 2, 3], [([9], [])])]
    cache.insert([1, 2, 3, 4, 5], [1, 2, 3, 4], "", mine)
    cache.insert([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], "", mine)
    assert shape(cache) == [([1, 2, 3], [([4, 5], []), ([9], [])])]
    cache.check()


def test_each_chunk_of_a_prefill_is_a_node():
    """Two chunks and the output: eviction takes the output whole, then the second chunk, then the first."""
    cache = RadixPrefixCache(1)
    trail = Trail(num_prefill=4)
    for stop in (2, 4, 5, 6):
        cache.insert([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6][:stop], "", trail)
    assert shape(cache) == [([1, 2], [([3, 4], [([5, 6], [])])])]
    cache.idle([6, 5, 4, 3, 2, 1])
    assert [cache.evict(1) for _ in range(3)] == [[6, 5], [4, 3], [2, 1]]


def test_an_equal_sequence_that_ends_within_a_node_parts_it():
    """Whoever comes to the end of a prefix there made it a node of its own, though it added nothing."""
    cache = RadixPrefixCache(1)
    cache.insert([1, 2, 3], [1, 2, 3], "")
    assert cache.insert([1, 2], [7, 8], "") == [1, 2]
    assert shape(cache) == [([1, 2], [([3], [])])]


def test_forgetting_a_block_takes_what_hangs_on_it(grown):
    """All below an overwritten block is idle and goes, leaves first; the rest stays."""
    grown.use([101, 102, 103, 104])
    assert grown.forget(104) == [111, 107, 106, 105]
    assert shape(grown) == [([1, 2, 3], [([8, 9], [])])]
    assert grown.num_idle == 2
    grown.check()


def test_an_empty_tree_is_dropped():
    """Salts come and go without a trace: one per user must not add up."""
    cache = RadixPrefixCache(1)
    for number in range(100):
        cache.insert([1], [number], f"user {number}")
        cache.idle([number])
    cache.evict(99)
    assert list(cache._roots) == ["user 99"]
    assert cache.insert([1], [], "nobody") == []
    assert list(cache._roots) == ["user 99"]


def test_a_very_long_chain_needs_no_recursion():
    """Ten thousand nodes below each other are walked, checked and cut."""
    cache = RadixPrefixCache(1)
    tokens = list(range(10_000))
    for stop in range(100, 10_001, 100):
        cache.insert(tokens, tokens[:stop], "")
    cache.check()
    cache.idle(tokens[:0:-1])
    assert cache.forget(0) == tokens[:0:-1]


def test_idling_the_head_first_is_a_mistake(grown):
    """The tail of a chain must be older than its head, or eviction would leave it unreachable."""
    grown.use([101, 102, 103, 108, 109])
    grown.idle([101, 102, 103, 108, 109])
    with pytest.raises(AssertionError, match="block 101 would go before 102"):
        grown.check()
    with pytest.raises(AssertionError, match="block 101 went before those behind it"):
        grown.evict(99)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda cache: cache._nodes.pop(109), "index of blocks"),
        (lambda cache: cache._idle.update({55: None}), "an idle block lies in no tree"),
        (lambda cache: cache._idle.pop(111), "block 107 is idle, but 111 behind it is used"),
        (lambda cache: cache._idle.pop(104), "block 103 is idle, but 104 behind it is used"),
        (lambda cache: cache._idle.move_to_end(111), "block 107 would go before 111 behind it"),
        (lambda cache: cache._idle.move_to_end(108), "block 103 would go before 108 behind it"),
        (lambda cache: cache._nodes[109].keys.pop(), "1 keys"),
        (lambda cache: cache._nodes[111].block_ids.__setitem__(0, 109), "two nodes"),
        (lambda cache: setattr(cache._nodes[109], "start", 4), "starts at 4, not 3"),
        (lambda cache: setattr(cache._nodes[109], "parent", None), "wrong parent"),
        (lambda cache: cache._roots.update({"x": cache._root("")}), "the root of 'x' is for ''"),
        (lambda cache: cache._root("x"), "the tree of 'x' is empty"),
    ],
)
def test_check_names_the_equation_that_fails(grown, damage, message):
    """Damaged books are found."""
    damage(grown)
    with pytest.raises(AssertionError, match=message):
        grown.check()
