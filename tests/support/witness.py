"""A model made of hashes: each token depends on all tokens before it, as they are found through the block table."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from headway.core import FinishReason, Logprobs, StepResult, Token
from headway.errors import ExecutorFault
from tests.support.engines import simulated_engine

LOWEST_ID = 3  # below are the end-of-text tokens: the model never ends by itself


class Outcome:
    """A step that is over; its result, or its fault, is kept until it is asked for."""

    def __init__(self, clock, end_s, outcome):
        self._clock, self._end_s, self._outcome = clock, end_s, outcome

    def result(self):
        self._clock.advance_to(self._end_s)
        if isinstance(self._outcome, ExecutorFault):
            raise self._outcome
        return self._outcome


class WitnessExecutor:
    """Keeps, for each slot of each block, a digest of everything up to there. What a solo run would say is known.

    A step that `fault(batch)` makes fail has spoilt all slots that it was to write. Steps last 10 ms.
    """

    def __init__(self, inner, fault, in_flight):
        self._clock, self._vocab_size, self._fault = inner._clock, inner._vocab_size, fault
        self._capacity = replace(inner.capacity(), in_flight=in_flight)
        self.device, self.host = {}, {}

    def capacity(self):
        return self._capacity

    def launch(self, batch):
        self.swap_out(batch.swap_out)
        self.swap_in(batch.swap_in)
        self.copy_blocks(batch.copies)
        end_s = self._clock.now() + 0.01
        fault, result = self._fault(batch), StepResult(elapsed_s=0.01)
        for lane in batch.lanes:
            self._compute(lane, result, is_spoilt=fault is not None)
        return Outcome(self._clock, end_s, fault or result)

    def swap_out(self, pairs):
        for device, host in pairs:
            self.host[host] = list(self.device.get(device, ()))

    def swap_in(self, pairs):
        for host, device in pairs:
            self.device[device] = list(self.host[host])

    def copy_blocks(self, pairs):
        for source, target in pairs:
            self.device[target] = list(self.device.get(source, ()))

    def release(self, seq_ids):
        pass

    def close(self):
        pass

    def _compute(self, lane, result, *, is_spoilt):
        size = self.capacity().block_size
        known = [self._slot(lane.block_table, at, size) for at in range(lane.start)]
        scores = []
        for at, token_id in enumerate(lane.token_ids, start=lane.start):
            known.append(digest(known, token_id))
            slots = self.device.setdefault(lane.block_table[at // size], [None] * size)
            slots += [None] * (size - len(slots))
            slots[at % size] = -1 if is_spoilt else known[-1]
            after = at + 1 - lane.start
            following = lane.token_ids[after] if after < len(lane.token_ids) else lane.next_id
            if following is not None:
                scores.append(score(known[-1], following))
        if lane.prompt_logprobs is not None:
            result.prompt_logprobs[lane.seq_id] = scores
        for draw in lane.draws:
            token_id = drawn(known[-1], draw.params, draw.seed, draw.choice, self._vocab_size)
            logprobs = None if draw.params.logprobs is None else score(known[-1], token_id)
            result.tokens[draw.seq_id] = [Token(token_id, logprobs)]

    def _slot(self, table, at, size):
        slots = self.device.get(table[at // size], [None] * size)
        return slots[at % size]


def digest(known, token_id):
    """What the slot behind `known` holds: a function of all of them, in their order, and of the token there."""
    return hash((tuple(known), token_id)) & 0xFFFFFFFF


def drawn(state, params, seed, choice, vocab_size):
    """The token after a state: greedy takes one, chance one of its own for each seed and choice."""
    key = state if params.is_greedy else hash((state, seed, choice)) & 0xFFFFFFFF
    return LOWEST_ID + key % (vocab_size - LOWEST_ID)


def score(state, token_id):
    """A made-up log probability of a token after a state."""
    return Logprobs(logprob=-(hash((state, token_id)) % 10_000) / 1000, rank=1)


def solo_tokens(request, choice, vocab_size) -> Iterator[tuple[int, Logprobs]]:
    """What a choice of a request says when nobody else is there and nothing is ever kept, without end."""
    known = []
    for token_id in request.prompt_ids:
        known.append(digest(known, token_id))
    while True:
        token_id = drawn(known[-1], request.params, request.params.seed or 0, choice, vocab_size)
        yield token_id, score(known[-1], token_id)
        known.append(digest(known, token_id))


def solo_scores(request):
    """Log probabilities of a prompt from its second token on."""
    known, scores = [], []
    for at, token_id in enumerate(request.prompt_ids):
        if known:
            scores.append(score(known[-1], request.prompt_ids[at]))
        known.append(digest(known, token_id))
    return tuple(scores)


def witness_engine(*, fault=lambda batch: None, in_flight=1, **settings):
    """An engine over a `WitnessExecutor`; settings are those of `simulated_engine`."""
    wrap = partial(WitnessExecutor, fault=fault, in_flight=in_flight)
    return simulated_engine(wrap=wrap, **{"policy": "vllm", **settings})


def check_tokens(request, choice, tokens, reason, vocab_size):
    """The (id, logprobs) of a choice are its solo run's: all of them, or a beginning where it ended early."""
    expected = list(itertools.islice(solo_tokens(request, choice, vocab_size), request.max_output))
    if reason is not FinishReason.LENGTH:
        expected = expected[: len(tokens)]
    got_ids = [token_id for token_id, _ in tokens]
    assert got_ids == [token_id for token_id, _ in expected], f"{request.id}/{choice} differs from its solo run"
    if request.params.logprobs is not None:
        assert [entry for _, entry in tokens] == [entry for _, entry in expected], f"{request.id}: logprobs"
