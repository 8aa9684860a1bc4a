"""The KV cache under any order of operations, with block contents simulated: a wrong share shows as a wrong token.

Every slot of the device and of the host tier is modelled by the (salt, tokens so far) that was written there,
so a table is right only if each position below `num_computed` holds exactly its own history.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.kv import HashedPrefixCache, KVCache, NoPrefixCache, RadixPrefixCache

NUM_BLOCKS = 12
SALTS = ("", "a")
# Most prompts begin alike, so that sequences meet in the cache and compute the same blocks side by side.
some_prompt = st.builds(
    lambda num, tail: ([0, 1, 1, 0, 0, 1, 0, 1, 1, 1][:num] + tail) or [0],
    st.integers(0, 10),
    st.lists(st.integers(0, 1), max_size=3),
)


class Live:
    """A sequence as its owner knows it."""

    def __init__(self, seq_id, tokens, salt, num_computed):
        self.id, self.tokens, self.salt, self.num_computed = seq_id, tokens, salt, num_computed
        self.is_swapped = False

    def history(self, position):
        """What the KV at a position depends on."""
        return self.salt, tuple(self.tokens[: position + 1])


class CacheMachine(RuleBasedStateMachine):
    """Sequences live and die in one cache; contents follow the copies that it asks for."""

    block_size = 2
    num_host_blocks = 6

    def make_prefix(self):
        return NoPrefixCache()

    def __init__(self):
        super().__init__()
        self.kv = KVCache(NUM_BLOCKS, self.block_size, self.make_prefix(), self.num_host_blocks)
        self.device, self.host = {}, {}  # (block, slot) -> history
        self.live = {}
        self.num_made = 0

    def pick(self, data, *, swapped=False):
        names = [name for name, seq in self.live.items() if seq.is_swapped == swapped]
        return self.live[data.draw(st.sampled_from(names))] if names else None

    def copy(self, pairs, source, target):
        for old, new in pairs:
            for slot in range(self.block_size):
                target.pop((new, slot), None)
                if (old, slot) in source:
                    target[new, slot] = source[old, slot]

    def slot(self, seq, position):
        return self.kv.block_table(seq.id)[position // self.block_size], position % self.block_size

    @rule(prompt=some_prompt, salt=st.sampled_from(SALTS))
    def admit(self, prompt, salt):
        """A hit leaves a token to compute, is made of whole blocks, and holds what the prompt needs."""
        hit = self.kv.match(prompt, salt)
        assert hit.num_tokens < len(prompt)
        assert hit.num_tokens == len(hit.block_ids) * self.block_size
        if sum(not self.kv.pool.refs[block] for block in hit.block_ids) > self.kv.num_free:
            return
        seq = Live(str(self.num_made), list(prompt), salt, hit.num_tokens)
        self.num_made += 1
        self.kv.admit(seq.id, hit)
        self.live[seq.id] = seq

    @rule(data=st.data(), num=st.integers(1, 6), token=st.integers(0, 1), is_published=st.booleans())
    def step(self, data, num, token, is_published):
        """Tokens are written into blocks that nobody else has, then published; at the end a token is drawn."""
        if (seq := self.pick(data)) is None:
            return
        start, stop = seq.num_computed, min(seq.num_computed + num, len(seq.tokens))
        touched = self.kv.block_table(seq.id)[start // self.block_size : self.kv.blocks_for(stop)]
        num_shared = sum(self.kv.pool.refs[block] > 1 for block in touched)
        if self.kv.blocks_for(stop) - self.kv.num_held(seq.id) + num_shared > self.kv.num_free:
            return
        copies = self.kv.extend(seq.id, start, stop)
        assert len(copies) == num_shared
        self.copy(copies, self.device, self.device)
        for position in range(start, stop):
            block, slot = self.slot(seq, position)
            assert self.kv.pool.refs[block] == 1
            assert not self.kv.prefix.holds(block)
            self.device[block, slot] = seq.history(position)
        seq.num_computed = stop
        if is_published:
            self.kv.publish(seq.id, seq.tokens, stop, seq.salt)
        if stop == len(seq.tokens):
            seq.tokens.append(token)

    @rule(data=st.data())
    def fork(self, data):
        """A child sees what its parent computed."""
        if (parent := self.pick(data)) is None:
            return
        child = Live(str(self.num_made), list(parent.tokens), parent.salt, parent.num_computed)
        self.num_made += 1
        self.kv.fork(parent.id, child.id)
        self.live[child.id] = child

    @rule(data=st.data())
    def trim(self, data):
        """The blocks behind a token are gone, and the next write may start anywhere."""
        if (seq := self.pick(data)) is None:
            return
        num_tokens = data.draw(st.integers(0, seq.num_computed))
        self.kv.trim(seq.id, num_tokens)
        seq.num_computed = num_tokens
        assert self.kv.num_held(seq.id) == self.kv.blocks_for(num_tokens)

    @rule(data=st.data(), swapped=st.booleans())
    def release(self, data, swapped):
        """Nothing of a released sequence remains but what is cached."""
        if (seq := self.pick(data, swapped=swapped)) is None:
            return
        self.kv.release(seq.id)
        del self.live[seq.id]
        assert not self.kv.holds(seq.id)

    @rule(data=st.data())
    def swap_out(self, data):
        """The host gets every block, shared ones too; the device keeps only what others hold or is cached."""
        if (seq := self.pick(data)) is None or not self.kv.can_swap_out(seq.id):
            return
        self.copy(self.kv.swap_out(seq.id), self.device, self.host)
        seq.is_swapped = True

    @rule(data=st.data())
    def swap_in(self, data):
        """The sequence is back, in blocks of its own."""
        seq = self.pick(data, swapped=True)
        if seq is None or len(self.kv.swapped[seq.id]) > self.kv.num_free:
            return
        self.copy(self.kv.swap_in(seq.id), self.host, self.device)
        seq.is_swapped = False
        assert all(self.kv.pool.refs[block] == 1 for block in self.kv.block_table(seq.id))

    @rule(data=st.data(), num_blocks=st.integers(0, 6))
    def reserve(self, data, num_blocks):
        """A promise lowers the free count by what is not held yet, once."""
        if (seq := self.pick(data)) is None:
            return
        owed = self.kv.tables[seq.id].num_owed
        more = max(0, num_blocks - self.kv.num_held(seq.id)) - owed
        if more > self.kv.num_free:
            return
        before = self.kv.num_free
        self.kv.reserve(seq.id, num_blocks)
        assert self.kv.num_free == before - max(0, more)

    @rule()
    def forget_idle(self):
        """Emptying the cache costs nobody a block."""
        before = self.kv.num_free
        self.kv.forget_idle()
        assert (self.kv.num_free, self.kv.num_cached) == (before, 0)

    @rule(prompt=some_prompt, salt=st.sampled_from(SALTS))
    def look(self, prompt, salt):
        """Whatever is found holds the prompt's own history, of its own salt."""
        hit = self.kv.match(prompt, salt)
        wanted = Live("", prompt, salt, 0)
        for position in range(hit.num_tokens):
            slot = hit.block_ids[position // self.block_size], position % self.block_size
            assert self.device[slot] == wanted.history(position)

    @invariant()
    def books_are_right(self):
        """Everything adds up."""
        self.kv.check()

    @invariant()
    def contents_are_right(self):
        """Each computed position of each table holds its own history, on the device or in the host tier."""
        for seq in self.live.values():
            block_ids = self.kv.swapped[seq.id] if seq.is_swapped else self.kv.block_table(seq.id)
            memory = self.host if seq.is_swapped else self.device
            for position in range(seq.num_computed):
                slot = block_ids[position // self.block_size], position % self.block_size
                assert memory[slot] == seq.history(position), f"{seq.id} reads a wrong token at {position}"

    @precondition(lambda self: not any(not seq.is_swapped for seq in self.live.values()))
    @invariant()
    def idle_pool_is_whole(self):
        """With no sequence on the device, free and idle blocks are all there are."""
        assert self.kv.num_free == NUM_BLOCKS
        assert self.kv.pool.num_free + self.kv.num_cached == NUM_BLOCKS


class HashedMachine(CacheMachine):
    def make_prefix(self):
        return HashedPrefixCache(self.block_size)


class RadixMachine(CacheMachine):
    def make_prefix(self):
        return RadixPrefixCache(self.block_size)


class OneTokenBlocksMachine(RadixMachine):
    block_size = 1


class EndlessHostMachine(HashedMachine):
    block_size = 3
    num_host_blocks = None


TestPlain = CacheMachine.TestCase
TestHashed = HashedMachine.TestCase
TestRadix = RadixMachine.TestCase
TestOneTokenBlocks = OneTokenBlocksMachine.TestCase
TestEndlessHost = EndlessHostMachine.TestCase

for case in (TestPlain, TestHashed, TestRadix, TestOneTokenBlocks, TestEndlessHost):
    case.settings = settings(stateful_step_count=30)
