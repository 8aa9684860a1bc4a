"""The block pool and the host tier against plain models, under any order of operations."""

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.kv import BlockPool
from headway.kv.host import HostTier

NUM_BLOCKS = 7


class PoolMachine(RuleBasedStateMachine):
    """A pool beside a queue of free blocks, a count per block, and a set of loose ones."""

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.free = deque(range(NUM_BLOCKS))
        self.refs = dict.fromkeys(range(NUM_BLOCKS), 0)
        self.loose = []

    def referenced(self):
        return [block for block, num in self.refs.items() if num]

    @rule(data=st.data())
    def take(self, data):
        """Blocks come in the order in which they became free."""
        num = data.draw(st.integers(0, len(self.free)))
        expected = [self.free.popleft() for _ in range(num)]
        assert self.pool.take(num) == expected
        self.refs |= dict.fromkeys(expected, 1)

    @precondition(lambda self: self.referenced() or self.loose)
    @rule(data=st.data())
    def ref(self, data):
        """A block that is not free, a loose one too, can get a holder."""
        block = data.draw(st.sampled_from(self.referenced() + self.loose))
        self.pool.ref([block])
        self.refs[block] += 1
        self.loose = [other for other in self.loose if other != block]

    @precondition(lambda self: self.referenced())
    @rule(data=st.data())
    def unref(self, data):
        """The blocks whose last holder went are returned in order, and are not free yet."""
        block_ids = data.draw(st.lists(st.sampled_from(self.referenced()), unique=True))
        for block in block_ids:
            self.refs[block] -= 1
        loose = [block for block in block_ids if not self.refs[block]]
        assert self.pool.unref(block_ids) == loose
        assert not any(self.pool.is_free(block) for block in loose)
        self.loose += loose

    @precondition(lambda self: self.loose)
    @rule(data=st.data())
    def give_back(self, data):
        """Loose blocks queue up as free ones in the order given."""
        block_ids = data.draw(st.lists(st.sampled_from(self.loose), unique=True))
        self.pool.give_back(block_ids)
        self.free += block_ids
        self.loose = [block for block in self.loose if block not in block_ids]

    @invariant()
    def agree(self):
        """Counts and free blocks are the model's."""
        self.pool.check()
        assert self.pool.num_free == len(self.free)
        assert dict(enumerate(self.pool.refs)) == self.refs


class HostMachine(RuleBasedStateMachine):
    """A host tier beside the list of what is in use."""

    limit = 5

    def __init__(self):
        super().__init__()
        self.tier = HostTier(self.limit)
        self.used = []

    @rule(num=st.integers(0, 5))
    def take(self, num):
        """Ids are fresh to their owner, and below the limit."""
        if num > self.tier.num_free:
            return
        host_ids = self.tier.take(num)
        assert len(set(host_ids)) == num
        assert not set(host_ids) & set(self.used)
        assert self.limit is None or all(host_id < self.limit for host_id in host_ids)
        self.used += host_ids

    @rule(data=st.data())
    def give_back(self, data):
        """What is given back can be taken again."""
        if self.used:
            host_ids = data.draw(st.lists(st.sampled_from(self.used), unique=True))
            self.tier.give_back(host_ids)
            self.used = [host_id for host_id in self.used if host_id not in host_ids]

    @invariant()
    def agree(self):
        """Used blocks add up."""
        self.tier.check(self.used)
        assert self.tier.num_used == len(self.used)
        assert self.limit is None or self.tier.num_free == self.limit - len(self.used)


class EndlessHostMachine(HostMachine):
    """The same without a limit."""

    limit = None


TestPool = PoolMachine.TestCase
TestHost = HostMachine.TestCase
TestEndlessHost = EndlessHostMachine.TestCase
