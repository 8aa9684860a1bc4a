"""Both prefix caches against brute force: the list of all blocks inserted and not evicted since."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.kv import HashedPrefixCache, RadixPrefixCache
from headway.kv.prefix import Trail

SIZE = 2
SALTS = ("", "a", "b")
# Three tokens, so that prefixes meet and part everywhere.
some_tokens = st.lists(st.integers(0, 2), max_size=11)


class Owner:
    """A sequence: its tokens, its table once it uses blocks, how far it is inserted."""

    def __init__(self, tokens, salt):
        self.tokens, self.salt, self.block_ids = list(tokens), salt, []
        self.trail = Trail()


class PrefixMachine(RuleBasedStateMachine):
    """Owners wait, come with a hit, insert block by block, grow, and go; idle blocks are evicted.

    The model is `paths`: for each cached block its salt and all tokens up to its end. `stamps` says when an idle
    block was last used, in the tree also by being looked up.
    """

    def make(self):
        raise NotImplementedError

    def __init__(self):
        super().__init__()
        self.cache = self.make()
        self.waiting = []
        self.owners = []
        self.paths = {}
        self.stamps = {}
        self.num_blocks = 0
        self.now = 0

    def brute_force(self, tokens, salt):
        """Blocks of the longest run of whole blocks from the front that are all there."""
        by_path = {path: block for block, path in self.paths.items()}
        found = []
        for stop in range(SIZE, len(tokens) + 1, SIZE):
            block = by_path.get((salt, tuple(tokens[:stop])))
            if block is None:
                break
            found.append(block)
        return found

    def refs(self, block):
        return sum(block in owner.block_ids for owner in self.owners)

    def stamp(self, block_ids):
        """They were used just now, the last of them before the others."""
        for block in reversed(block_ids):
            self.stamps[block] = self.now
            self.now += 1

    def look_up(self, tokens, salt, owner=None):
        """A hit is what brute force finds, whatever was kept of an owner."""
        hit = self.cache.match(tokens, salt, owner)
        assert list(hit.block_ids) == self.brute_force(tokens, salt)
        assert hit.num_tokens == SIZE * len(hit.block_ids)
        if isinstance(self.cache, RadixPrefixCache):
            self.stamp([block for block in hit.block_ids if block in self.stamps])
        return hit

    @rule(tokens=some_tokens, salt=st.sampled_from(SALTS))
    def wait(self, tokens, salt):
        """Somebody new, who has not been asked about yet."""
        self.waiting.append(Owner(tokens, salt))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def ask(self, data):
        """What the cache holds of somebody who waits is found every time, as much as there is by then."""
        owner = data.draw(st.sampled_from(self.waiting))
        stop = data.draw(st.integers(max(0, len(owner.tokens) - 1), len(owner.tokens)))
        assert self.look_up(owner.tokens[:stop], owner.salt, owner) == self.look_up(owner.tokens[:stop], owner.salt)

    @precondition(lambda self: self.waiting + self.owners)
    @rule(data=st.data(), tokens=some_tokens)
    def grow(self, data, tokens):
        """Its output comes, before or between its waits."""
        data.draw(st.sampled_from(self.waiting + self.owners)).tokens += tokens

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def come(self, data):
        """The idle blocks of a hit become used."""
        owner = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(owner)
        hit = self.look_up(owner.tokens, owner.salt, owner)
        fresh = [block for block in hit.block_ids if not self.refs(block)]
        self.cache.use(fresh)
        for block in fresh:
            del self.stamps[block]
        owner.block_ids, owner.trail = list(hit.block_ids), Trail(len(hit.block_ids))
        self.owners.append(owner)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), keep_trail=st.booleans())
    def insert(self, data, keep_trail):
        """Blocks that are new are remembered, others ignored (hashed) or replaced (radix)."""
        owner = data.draw(st.sampled_from(self.owners))
        num = data.draw(st.integers(len(owner.block_ids), len(owner.tokens) // SIZE))
        added = list(range(self.num_blocks, self.num_blocks + num - len(owner.block_ids)))
        self.num_blocks += len(added)
        if not keep_trail:
            owner.trail = Trail()
        first = owner.trail.num_blocks
        given = [*owner.block_ids, *added]
        canonical = self.cache.insert(owner.tokens, given, owner.salt, owner.trail)
        expected = list(given)
        for position, block in enumerate(given[first:], start=first):
            path = owner.salt, tuple(owner.tokens[: SIZE * (position + 1)])
            there = next((other for other, known in self.paths.items() if known == path), None)
            if there is None:
                self.paths[block] = path
            elif isinstance(self.cache, RadixPrefixCache):
                expected[position] = there
        assert canonical == expected[first:]
        assert owner.trail.num_blocks == len(given)
        fresh = [block for block in expected if block in self.stamps]
        self.cache.use(fresh)
        for block in fresh:
            del self.stamps[block]
        owner.block_ids = expected

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), returns=st.booleans())
    def go(self, data, returns):
        """A leaving owner idles, tail first, what it alone used. One that was preempted waits again."""
        owner = data.draw(st.sampled_from(self.owners))
        self.owners.remove(owner)
        self.waiting += [owner] * returns
        loose = [block for block in reversed(owner.block_ids) if block in self.paths and not self.refs(block)]
        self.cache.idle(loose)
        self.stamp(loose[::-1])

    @rule(num=st.integers(0, 4))
    def evict(self, num):
        """The oldest idle block goes first; in the tree, among those that nothing continues, and with its leaf."""
        leaves = {block: list(node.block_ids) for block, node in getattr(self.cache, "_nodes", {}).items()}
        expected = []
        while self.stamps and len(expected) < num:
            block = min(self.evictable(), key=self.stamps.__getitem__)
            for other in reversed(leaves.get(block, [block])):
                if other in self.stamps:
                    expected.append(other)
                    del self.stamps[other], self.paths[other]
        assert self.cache.evict(num) == expected

    def evictable(self):
        if isinstance(self.cache, HashedPrefixCache):
            return list(self.stamps)
        inner = {(salt, tokens[:-SIZE]) for salt, tokens in self.paths.values()}
        return [block for block in self.stamps if self.paths[block] not in inner]

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def overwrite(self, data):
        """A block that only one owner uses is forgotten before a write, in the tree with all that continues it."""
        owner = data.draw(st.sampled_from(self.owners))
        if not owner.block_ids or owner.block_ids[-1] not in self.paths or self.refs(owner.block_ids[-1]) > 1:
            return
        block = owner.block_ids.pop()
        owner.trail = Trail(min(owner.trail.num_blocks, len(owner.block_ids)))
        salt, path = self.paths.pop(block)
        behind = []
        if isinstance(self.cache, RadixPrefixCache):
            behind = [
                other
                for other, (other_salt, tokens) in self.paths.items()
                if other_salt == salt and tokens[: len(path)] == path
            ]
        assert sorted(self.cache.forget(block)) == sorted(behind)
        for other in behind:
            del self.paths[other], self.stamps[other]

    @rule()
    def reset(self):
        """Everything idle goes at once."""
        assert sorted(self.cache.reset()) == sorted(self.stamps)
        for block in self.stamps:
            del self.paths[block]
        self.stamps.clear()

    @rule(tokens=some_tokens, salt=st.sampled_from(SALTS))
    def look(self, tokens, salt):
        """Looking again finds the same."""
        assert self.look_up(tokens, salt) == self.look_up(tuple(tokens), salt)

    @invariant()
    def agree(self):
        """The same blocks are cached and idle."""
        self.cache.check()
        assert self.cache.num_idle == len(self.stamps)
        assert all(self.cache.holds(block) == (block in self.paths) for block in range(self.num_blocks))


class HashedMachine(PrefixMachine):
    def make(self):
        return HashedPrefixCache(SIZE)


class RadixMachine(PrefixMachine):
    def make(self):
        return RadixPrefixCache(SIZE)


TestHashed = HashedMachine.TestCase
TestRadix = RadixMachine.TestCase
