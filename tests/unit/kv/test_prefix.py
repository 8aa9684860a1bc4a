"""What holds for every prefix cache, `hashed` and `radix`."""

import os
import subprocess
import sys

import pytest

from headway.errors import BadSetting
from headway.kv import HashedPrefixCache, Hit, NoPrefixCache, RadixPrefixCache
from headway.kv.choice import make_prefix_cache
from headway.kv.prefix import Trail

SIZE = 4
PROMPT = list(range(10, 22))  # three blocks


@pytest.fixture(params=[HashedPrefixCache, RadixPrefixCache])
def cache(request):
    return request.param(SIZE)


def test_only_whole_blocks_are_found(cache):
    """A block whose last token differs or is missing is not part of a hit."""
    cache.insert(PROMPT, [7, 8, 9], "")
    assert cache.match(PROMPT, "") == Hit(12, (7, 8, 9))
    assert cache.match(PROMPT[:11], "") == Hit(8, (7, 8))
    assert cache.match([*PROMPT[:7], 0], "") == Hit(4, (7,))
    assert cache.num_known([*PROMPT[:7], 0], "") == 4
    assert cache.num_known(PROMPT, "other") == 0
    assert cache.match(PROMPT[:3], "") is Hit.EMPTY
    assert cache.match([], "") is Hit.EMPTY
    assert cache.match(PROMPT[4:], "") is Hit.EMPTY


@pytest.mark.parametrize("length", [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE - 1, 2 * SIZE])
def test_a_shared_prefix_ends_at_any_token(cache, length):
    """Nothing special happens where it ends at a block's border, or one before or behind."""
    cache.insert(PROMPT, [7, 8, 9], "")
    other = PROMPT[:length] + [0] * 8
    assert cache.match(other, "").num_tokens == length // SIZE * SIZE
    fresh = [20 + place for place in range(len(other) // SIZE)]
    cache.insert(other, fresh, "")
    assert cache.match(other, "").num_tokens == len(other) // SIZE * SIZE
    assert cache.match(PROMPT, "") == Hit(12, (7, 8, 9))
    cache.check()


@pytest.mark.parametrize(
    ("mine", "theirs"), [("a", "b"), ("", "a"), ("a", ""), ("a", "a\x00"), ("ä", "a"), ("\ud800", "")]
)
def test_salts_never_share(cache, mine, theirs):
    """The same tokens are found under the same salt, and under no other."""
    cache.insert(PROMPT, [7, 8, 9], mine)
    assert cache.match(PROMPT, mine).num_tokens == 12
    assert cache.match(PROMPT, theirs) is Hit.EMPTY
    cache.insert(PROMPT, [1, 2, 3], theirs)
    assert cache.match(PROMPT, theirs).block_ids == (1, 2, 3)
    assert cache.match(PROMPT, mine).block_ids == (7, 8, 9)


def test_token_borders_cannot_be_forged(cache):
    """Tokens are not glued into one string: other tokens with the same digits are other tokens."""
    cache.insert([1, 23, 4, 5], [0], "")
    assert cache.match([12, 3, 4, 5], "") is Hit.EMPTY
    assert cache.match([1, 23, 45, 0], "") is Hit.EMPTY
    assert cache.match([-1, 2**40, 4, 5], "") is Hit.EMPTY


def test_matching_takes_lists_and_tuples(cache):
    """A prompt is a tuple, a sequence's tokens are a list: they match each other."""
    cache.insert(tuple(PROMPT), [7, 8, 9], "")
    assert cache.match(PROMPT, "") == cache.match(tuple(PROMPT), "") == Hit(12, (7, 8, 9))


def test_the_tail_of_a_chain_is_evicted_first(cache):
    """A released sequence idles tail first, so that what is left of it stays reachable."""
    cache.insert(PROMPT, [7, 8, 9], "")
    cache.idle([9])
    assert cache.evict(1) == [9]
    assert cache.match(PROMPT, "").num_tokens == 8
    assert not cache.holds(9)
    cache.idle([8, 7])
    assert cache.evict(5) == [8, 7]
    assert cache.evict(1) == []
    assert cache.num_idle == 0
    cache.check()


def test_the_least_recently_used_goes_first(cache):
    """Use puts a block at the end of the queue."""
    for block in range(3):
        cache.insert([block] * SIZE, [block], "")
        cache.idle([block])
    cache.use([0])
    cache.idle([0])
    assert cache.evict(2) == [1, 2]
    assert cache.reset() == [0]


def test_used_blocks_are_never_evicted(cache):
    """Only idle blocks go, however many are wanted."""
    cache.insert(PROMPT, [7, 8, 9], "")
    assert cache.evict(3) == []
    cache.idle([9])
    assert cache.evict(3) == [9]
    assert cache.reset() == []
    assert cache.match(PROMPT, "").block_ids == (7, 8)


@pytest.mark.parametrize(("kind", "victim"), [(HashedPrefixCache, 1), (RadixPrefixCache, 2)])
def test_looking_makes_a_tree_recent(kind, victim):
    """A match that admits nobody leaves the order of eviction alone (as vLLM), but in a radix tree (as SGLang)."""
    cache = kind(SIZE)
    cache.insert([1] * SIZE, [1], "")
    cache.insert([2] * SIZE, [2], "")
    cache.idle([1])
    cache.idle([2])
    cache.match([1] * SIZE, "")
    assert cache.evict(1) == [victim]


def test_a_trail_continues_where_it_ended(cache):
    """Inserting piece by piece is inserting at once, and returns only what is new."""
    trail = Trail()
    assert cache.insert(PROMPT, [7], "", trail) == [7]
    assert cache.insert(PROMPT, [7, 8, 9], "", trail) == [8, 9]
    assert cache.insert(PROMPT, [7, 8, 9], "", trail) == []
    assert trail.num_blocks == 3
    assert cache.match(PROMPT, "").block_ids == (7, 8, 9)


def test_a_trail_without_memory_finds_its_place(cache):
    """After a hit or a trim only the number of blocks is known; the chain goes on from there all the same."""
    cache.insert(PROMPT, [7, 8], "")
    cache.insert(PROMPT, [7, 8, 9], "", Trail(2))
    assert cache.match(PROMPT, "").block_ids == (7, 8, 9)
    cache.check()


def test_forgetting_a_used_block_leaves_those_before_it(cache):
    """A block about to be overwritten is found no more; a block that is idle cannot be written to."""
    cache.insert(PROMPT, [7, 8, 9], "")
    cache.idle([9])
    gone = cache.forget(8)
    assert not cache.holds(8)
    assert cache.match(PROMPT, "").block_ids == (7,)
    assert all(not cache.holds(block) for block in gone)
    cache.idle([7])
    with pytest.raises(AssertionError, match="block 7 is idle"):
        cache.forget(7)
    cache.check()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda cache: cache.idle([5]), "block 5 is not cached"),
        (lambda cache: cache.idle([9, 9]), "block 9 is idle already"),
        (lambda cache: cache.insert([0] * SIZE, [7], ""), "block 7 was inserted with other tokens"),
    ],
)
def test_mistakes_are_named(cache, mistake, message):
    """A caller that breaks the rules is told which block and why."""
    cache.insert(PROMPT, [7, 8, 9], "")
    with pytest.raises(AssertionError, match=message):
        mistake(cache)


SCRIPT = """
import random
from headway.kv import *
from headway.kv.choice import make_prefix_cache
chance = random.Random(5)
kv = KVCache(40, 4, make_prefix_cache("{name}", 4), None)
log = []
for turn in range(300):
    name = f"s{{turn}}"
    tokens = [chance.randrange(2) for _ in range(chance.randint(1, 30))]
    kv.admit(name, kv.match(tokens, chance.choice(["", "a", "b"])))
    start = kv.num_held(name) * 4
    if kv.blocks_for(len(tokens)) - kv.num_held(name) > kv.num_free:
        kv.release(name)
        continue
    log.append(kv.extend(name, start, len(tokens)))
    kv.publish(name, tokens, len(tokens), "")
    log.append(list(kv.block_table(name)))
    if chance.randrange(3):
        kv.release(name)
    for other in list(kv.tables)[:-4]:
        kv.release(other)
print(log)
"""


def test_equal_histories_give_equal_ids():
    """Block ids do not depend on the interpreter's hash seed, whatever the cache."""
    script = "".join(SCRIPT.format(name=name) for name in ("none", "hashed", "radix"))
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert [len(log) > 1000 for log in runs[0].splitlines()] == [True] * 3


def test_without_a_cache_nothing_is_found():
    """The null cache keeps the contract: no hits, nothing idle, and trails move on."""
    cache, trail = NoPrefixCache(), Trail()
    assert cache.insert(PROMPT, [7, 8], "") == [7, 8]
    assert cache.insert(PROMPT, [7, 8], "", trail) == [7, 8]
    assert cache.insert(PROMPT, [7, 8, 9], "", trail) == [9]
    assert cache.match(PROMPT, "") is Hit.EMPTY
    assert (cache.evict(3), cache.reset(), cache.num_idle, cache.holds(7)) == ([], [], 0, False)
    cache.use([])
    cache.idle([])
    cache.check()
    with pytest.raises(AssertionError, match="block 7 is not cached"):
        cache.forget(7)


def test_caches_are_made_by_name():
    """Three names; another one is refused with the list."""
    made = [type(make_prefix_cache(name, 4)) for name in ("hashed", "radix", "none")]
    assert made == [HashedPrefixCache, RadixPrefixCache, NoPrefixCache]
    with pytest.raises(BadSetting, match="'lru'; it must be one of hashed, radix, none"):
        make_prefix_cache("lru", 4)
