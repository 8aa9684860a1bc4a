"""The token ledger against rows that a device counted by itself, under random traffic with every kind of ending."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import Arrived, Cause, Finished, FinishReason, Request, SamplingParams
from headway.errors import ExecutorFault
from headway.obs import Entry, TokenLedger
from tests.support.effort import few
from tests.support.engines import Faulty, simulated_engine


class Counting:
    """Counts the rows of every batch that was launched, also of those that then break."""

    def __init__(self, inner):
        self._inner, self.num_rows = inner, 0

    def launch(self, batch):
        self.num_rows += batch.num_tokens + batch.num_wasted_rows + sum(lane.padding for lane in batch.lanes)
        return self._inner.launch(batch)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class Traffic:
    """Random requests, aborts, refusals and broken steps on one engine; every request is a tenant of its own."""

    def __init__(self, seed, policy):
        self.random = random.Random(seed)
        self.counting = None
        self.is_faulty = False
        engine = simulated_engine(
            wrap=self._wrapped,
            context=48,
            policy=policy,
            num_blocks=self.random.choice((13, 20, 40)),
            block_size=4,
            max_num_seqs=6,
            prefix_cache=self.random.choice(("hashed", "radix", "none")),
            **({} if policy in ("static", "orca") else {"max_num_batched_tokens": self.random.choice((8, 16, 64))}),
        )
        self.core, self.ledger = engine.core, TokenLedger(4)
        self.ended = []
        self.core.listen(self.ledger.on_events)
        self.core.listen(lambda events: self.ended.extend(one for one in events if isinstance(one, Finished)))
        self.names = []
        self.prefix = [self.random.randrange(3, 90) for _ in range(16)]

    def _wrapped(self, inner):
        self.counting = Counting(Faulty(inner, self._fault))
        return self.counting

    def _fault(self, batch):
        if not self.is_faulty or self.random.random() > 0.1:
            return None
        culprits = (batch.lanes[0].seq_id,) if batch.lanes and self.random.random() < 0.7 else ()
        return ExecutorFault("broken on purpose", seq_ids=culprits)

    def move(self):
        what = self.random.random()
        if what < 0.35 and len(self.names) < 60:
            self._submit()
        elif what < 0.42 and self.names:
            self.core.abort(self.random.choice(self.names), self.random.choice(list(FinishReason)[2:]))
        elif what < 0.45 and self.names:
            self.core.refuse(self.random.choice(self.names), "no more", Cause.TIMEOUT)
        else:
            self.core.step()

    def _submit(self):
        name = f"r{len(self.names)}"
        own = [self.random.randrange(3, 90) for _ in range(self.random.randint(1, 12))]
        prompt = self.prefix[: self.random.choice((0, 8, 16))] + own
        n = self.random.choice((1, 1, 1, 2))
        request = Request(
            id=name,
            prompt_ids=tuple(prompt),
            max_output=self.random.randint(1, 12),
            params=SamplingParams(n=n),
            tenant=name,
        )
        self.names.append(name)
        self.core.submit(request)

    def run(self, num_moves):
        for _ in range(num_moves):
            self.move()
            self.ledger.check()
        self.is_faulty = False
        for _ in range(5000):
            if not self.core.has_work:
                break
            self.core.step()
        self.core.flush_events()


@pytest.mark.parametrize("policy", ["vllm", "headway", "static", "vllm_v0", "fastserve"])
@few(3)
@given(seed=st.integers(0, 1 << 32))
def test_every_row_is_booked_once(policy, seed):
    """Whatever happens, the booked tokens are the rows that the device computed; of a whole answer they are its own."""
    traffic = Traffic(seed, policy)
    traffic.is_faulty = seed % 2 == 0
    traffic.run(120)
    traffic.ledger.check()
    books = traffic.ledger.books()
    assert books.num_computed == traffic.counting.num_rows
    assert sum(books.num_open.values()) == 0
    assert not traffic.ledger.blocks_held() or not any(traffic.ledger.blocks_held().values())
    for end in traffic.ended:
        entries, request = books.booked[end.request.id], end.request
        if request.params.n == 1 and end.reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert entries[Entry.USEFUL] + entries[Entry.PREFIX_SAVED] == request.num_prompt + end.num_output - 1
            assert entries[Entry.ABORTED] == entries[Entry.EXPIRED] == entries[Entry.REFUSED] == 0
        elif end.reason is FinishReason.ABORT:
            assert entries[Entry.USEFUL] == 0 or request.params.n > 1


def test_tenants_beyond_the_hundredth_share_a_name():
    """The number of series is bounded whatever clients do."""
    ledger = TokenLedger()
    for number in range(150):
        request = Request(id=f"r{number}", prompt_ids=(1,), max_output=1, tenant=f"t{number}")
        ledger.on_events([Arrived(request, 0.0)])
    assert len(ledger.books().booked) == 101
