"""The ledger against the KV cache: what it says will be free is free once the plan is carried out.

Random passes over one cache. After many a take and give-back, the plan so far is carried out on a copy of the
cache, in a random order within each kind of move: the free counts must be equal, and what was refused must
really be impossible. Then the plan is carried out in earnest, and sequences go on, fork and end.
"""

import copy
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Request, SamplingParams, Sequence
from headway.kv import HashedPrefixCache, KVCache, Ledger, NoPrefixCache, RadixPrefixCache

SIZE = 2
COMMON = [0, 1, 1, 0, 0, 1, 0, 1]
PREFIXES = {"none": NoPrefixCache, "hashed": lambda: HashedPrefixCache(SIZE), "radix": lambda: RadixPrefixCache(SIZE)}
MOVES = {"take": 8, "decodes": 2, "reserve": 1, "give_back": 2, "keep": 2, "swap": 2, "try": 1}


class Plan:
    """What a policy decided in one pass, as moves to carry out."""

    def __init__(self):
        self.released, self.kept, self.gangs = set(), {}, []
        self.granted, self.swapped_in = set(), set()

    @property
    def swapped_out(self):
        return {name for gang in self.gangs for name in gang}

    def drop(self, name):
        """Forget what was planned for a sequence."""
        self.released.discard(name)
        self.kept.pop(name, None)
        self.gangs = [gang - {name} for gang in self.gangs]
        self.granted.discard(name)
        self.swapped_in.discard(name)

    def carry_out(self, kv, ledger, seqs, chance):
        """All moves in the order that `KVCache` states. Returns the copies made; AssertionError where impossible."""

        def each(names):
            names = sorted(names)
            chance.shuffle(names)
            return names

        for name in each(self.released | self.kept.keys()):
            if name in self.released:
                kv.release(name)
            else:
                kv.trim(name, self.kept[name])
        for gang in self.gangs:
            kv.swap_out(*each(gang))
        for name in each(self.granted):
            if not kv.holds(name):
                kv.admit(name, ledger.hit(seqs[name]))
        kv.swap_in(*each(self.swapped_in))
        for name, num_blocks in ledger.reservations().items():
            kv.reserve(name, num_blocks)
        copies = []
        for name in each(self.granted | self.swapped_in):
            start = len(seqs[name].token_ids) - ledger.num_pending(seqs[name])
            copies += kv.extend(name, start, start + ledger.taken(seqs[name]))
        return copies


class World:
    """One cache, its sequences, and a source of chance. `seen` counts what has happened."""

    def __init__(self, prefix, num_host_blocks, seed):
        self.kv = KVCache(14, SIZE, PREFIXES[prefix](), num_host_blocks)
        self.chance = random.Random(seed)
        self.seqs = {}
        self.num_made = 0
        self.seen = Counter()

    def turn(self):
        """Something happens between passes, then one pass."""
        what = self.chance.choices(["arrive", "fork", "finish"], [3, 4, 2])[0]
        if what == "arrive" and len(self.seqs) < 9:
            self.arrive()
        elif what == "fork" and self.kv.tables and len(self.seqs) < 9:
            self.fork()
        elif what == "finish" and self.seqs:
            self.finish(self.chance.choice(sorted(self.seqs)))
        self.kv.check()
        if self.seqs:
            self.make_pass()

    def add(self, **words):
        name = str(self.num_made)
        self.num_made += 1
        self.seqs[name] = seq = Sequence(**words, id=name)
        return seq

    def arrive(self):
        """Most prompts begin alike; some have another salt, some want log probabilities of the prompt."""
        chance = self.chance
        prompt = [*COMMON[: chance.randrange(9)], chance.randrange(2)]
        params = SamplingParams(prompt_logprobs=chance.choice([None] * 5 + [1]))
        salt = chance.choice(["", "", "", "", "other"])
        self.add(request=Request(id="r", prompt_ids=tuple(prompt), max_output=99, cache_salt=salt, params=params))

    def fork(self):
        """A running sequence splits; a promise may be split with it."""
        parent = self.seqs[self.chance.choice(sorted(self.kv.tables))]
        children = [
            self.add(request=parent.request, token_ids=list(parent.token_ids)) for _ in range(self.chance.randint(1, 2))
        ]
        for child in children:
            child.num_computed = parent.num_computed
            self.kv.fork(parent.id, child.id)
        if self.chance.randrange(2):
            self.kv.split_promise([parent.id, *(child.id for child in children)])

    def finish(self, name):
        if self.kv.holds(name):
            self.kv.release(name)
        del self.seqs[name]

    def make_pass(self):
        """The ledger tells the truth at any point of the pass, and at its end."""
        ledger, plan = Ledger(self.kv), Plan()
        for move in self.chance.choices([*MOVES], [*MOVES.values()], k=self.chance.randrange(14)):
            self.move(move, self.chance.choice(sorted(self.seqs)), ledger, plan)
            if self.chance.random() < 0.4:  # a copy of the cache takes most of this test's time
                trial = copy.deepcopy(self.kv)
                plan.carry_out(trial, ledger, self.seqs, self.chance)
                trial.check()
                assert trial.num_free == ledger.num_free, move
        copies = plan.carry_out(self.kv, ledger, self.seqs, self.chance)
        self.seen["copies"] += len(copies)
        self.kv.check()
        for name, seq in self.seqs.items():
            assert self.kv.num_held(name) == ledger.num_held(seq)
        assert ledger.num_taken == sum(map(ledger.taken, self.seqs.values()))
        self.commit(ledger, plan)

    def move(self, move, name, ledger, plan):
        if move in ("take", "reserve"):
            self.take(name, self.chance.randrange(20) if move == "reserve" else None, ledger, plan)
        elif move == "decodes":
            self.take_decodes(ledger, plan)
        elif move == "give_back":
            ledger.give_back(self.seqs[name])
            plan.drop(name)
            if name in self.kv.tables:
                plan.released.add(name)
        elif name not in self.kv.tables or name in plan.released | plan.swapped_out:
            return
        elif move == "keep":
            self.keep(name, ledger, plan)
        elif move == "swap" and name not in plan.kept:
            self.swap_out(name, ledger, plan)
        elif move == "try":
            self.try_out(name, ledger)
        self.seen[move] += 1

    def keep(self, name, ledger, plan):
        most = plan.kept.get(name, self.seqs[name].num_computed)
        plan.drop(name)
        plan.kept[name] = self.chance.randint(0, most)
        ledger.give_back(self.seqs[name], plan.kept[name])

    def swap_out(self, name, ledger, plan):
        """With it go all that share a block with it, or it alone."""
        block_ids = set(self.kv.block_table(name))
        gang = {name}
        if self.chance.randrange(2):
            gang = {other for other in self.kv.tables if other == name or block_ids & set(self.kv.block_table(other))}
        if gang & (plan.released | plan.kept.keys() | plan.swapped_out):
            return
        wanted = [*plan.gangs, gang]
        num_wanted = sum(len({block for other in each for block in self.kv.block_table(other)}) for each in wanted)
        fits = num_wanted <= self.kv.num_host_free
        assert ledger.give_back_swapped(*(self.seqs[other] for other in sorted(gang))) == fits
        self.seen["swapped together"] += fits and len(gang) > 1
        if fits:
            plan.gangs.append(gang)
            plan.granted -= gang

    def try_out(self, name, ledger):
        """A scratch ledger may be ruined without a trace."""
        before = ledger.num_free, ledger.num_taken, ledger.num_held(self.seqs[name])
        scratch = ledger.scratch()
        for other in self.seqs.values():
            scratch.give_back(other)
        assert scratch.num_free == self.kv.num_blocks
        assert (ledger.num_free, ledger.num_taken, ledger.num_held(self.seqs[name])) == before

    def take_decodes(self, ledger, plan):
        """What is taken at once for the first of a row is what would be taken for one after the other."""
        row = self.chance.sample(sorted(self.seqs), self.chance.randint(1, len(self.seqs)))
        alone = ledger.scratch()
        num = ledger.take_decodes(self.seqs[name] for name in row)
        for name in row[:num]:
            assert ledger.num_pending(self.seqs[name]) == 1
            assert alone.take(self.seqs[name], 1)
            plan.granted.add(name)
        assert (ledger.num_free, ledger.takes) == (alone.num_free, alone.takes)
        self.seen["decodes taken"] += num

    def take(self, name, reserve, ledger, plan):
        seq = self.seqs[name]
        if name in plan.swapped_out:
            assert not ledger.take(seq, 1, reserve)
            return
        num = min(self.chance.randrange(8), ledger.num_pending(seq) - ledger.taken(seq))
        before = ledger.num_free, ledger.taken(seq), ledger.num_held(seq), ledger.num_taken
        group, take = "granted", lambda: ledger.take(seq, num, reserve)
        if name in self.kv.swapped:
            group, take, reserve = "swapped_in", lambda: ledger.take_swap_in(seq, num), None
        if take():
            assert ledger.taken(seq) == before[1] + num
            getattr(plan, group).add(name)
            return
        assert (ledger.num_free, ledger.taken(seq), ledger.num_held(seq), ledger.num_taken) == before
        self.seen["refused"] += 1
        bolder = copy.deepcopy(plan)
        getattr(bolder, group).add(name)
        wish = Wish(ledger, name, num, -(-(reserve or 0) // SIZE))
        with pytest.raises(AssertionError, match=r"blocks wanted|promised"):
            bolder.carry_out(copy.deepcopy(self.kv), wish, self.seqs, self.chance)

    def commit(self, ledger, plan):
        """Counters follow; in some passes the step breaks: nothing was computed, though blocks were given."""
        is_broken = self.chance.random() < 0.1
        for name in plan.released:
            self.seqs[name].num_computed = 0
        for name, kept in plan.kept.items():
            self.seqs[name].num_computed = kept
        for name in sorted(plan.granted | plan.swapped_in):
            seq = self.seqs[name]
            start = len(seq.token_ids) - ledger.num_pending(seq)
            seq.num_computed = start if is_broken else start + ledger.taken(seq)
            self.kv.publish(name, seq.token_ids, seq.num_computed, seq.request.cache_salt)
            if seq.num_pending == 0:
                seq.token_ids.append(self.chance.randrange(2))


class Wish:
    """A ledger that also grants what was refused."""

    def __init__(self, ledger, name, num, num_promised):
        self.ledger, self.name, self.num, self.num_promised = ledger, name, num, num_promised

    def hit(self, seq):
        return self.ledger.hit(seq)

    def num_pending(self, seq):
        return self.ledger.num_pending(seq)

    def taken(self, seq):
        return self.ledger.taken(seq) + (self.num if seq.id == self.name else 0)

    def reservations(self):
        promised = self.ledger.reservations()
        return promised | {self.name: max(self.num_promised, promised.get(self.name, 0))}


@given(seed=st.integers(0, 10**9), prefix=st.sampled_from([*PREFIXES]), num_host_blocks=st.sampled_from([0, 8, None]))
def test_plans_come_true(seed, prefix, num_host_blocks):
    """Whatever a pass takes and gives back, carrying it out never fails and leaves the free count that was told."""
    world = World(prefix, num_host_blocks, seed)
    for _ in range(16):
        world.turn()


def test_the_walk_meets_everything():
    """The random passes above are dense: each kind of move, refusal and copy is met, and hits as well."""
    world = World("radix", 8, seed=1)
    for _ in range(150):
        world.turn()
    met = world.seen | Counter(hits=world.kv.stats.num_hit_tokens, evictions=world.kv.stats.num_evicted)
    expected = {*MOVES, "decodes taken", "copies", "refused", "swapped together", "hits", "evictions"}
    assert {what for what in expected if met[what] < 3} == set(), met
