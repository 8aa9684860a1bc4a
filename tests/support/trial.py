"""An engine under observation: whatever is done to it, tokens, endings and blocks are audited."""

from collections import defaultdict

from headway.core import (
    Admitted,
    Finished,
    FinishReason,
    Preempted,
    PromptScored,
    Rejected,
    SamplingParams,
    SequenceFinished,
    StepRecord,
    TokenEmitted,
)
from headway.engine.door import Extras
from tests.support.witness import check_tokens, solo_scores, witness_engine


class Trial:
    """Submit, step, abort; `finish` runs until nothing is left and holds everything against the solo runs."""

    def __init__(self, **settings):
        self.engine = witness_engine(**settings)
        self.core = self.engine.core
        self.requests, self.endings, self.refusals, self.scores = {}, {}, {}, {}
        self.tokens, self.reasons = defaultdict(list), {}
        self.first_at, self.cached, self.steps = {}, defaultdict(list), []
        self.num_preemptions = defaultdict(int)
        self.core.listen(self._on_events)

    def submit(self, name, prompt, max_tokens=4, *, extras=None, **params):
        """Queue a request: a prompt as ids, or so many tokens of its own."""
        ids = own_ids(name, prompt) if isinstance(prompt, int) else prompt
        sampling = SamplingParams(**{"max_tokens": max_tokens, "temperature": 0.0, "ignore_eos": True, **params})
        request = self.engine.door.request(name, ids, sampling, self.engine.clock.now(), Extras(**(extras or {})))
        self.requests[name] = request
        self.core.submit(request)
        return request

    def step(self, times=1):
        """Steps, each followed by an audit; where there was nothing to compute, time goes on all the same."""
        for _ in range(times):
            if not self.core.step():
                self.engine.clock.advance(0.01)
            self.core.check()

    def abort(self, name):
        """End a request, twice: the second time does nothing."""
        self.core.abort(name)
        self.core.abort(name)
        self.core.check()

    def finish(self, most=5000):
        """Run to the end within so many steps, then check all that a client or an operator can see."""
        for _ in range(most):
            if not self.core.has_work:
                break
            self.step()
        self.core.flush_events()
        assert not self.core.has_work, (
            f"after {most} steps these are left: {sorted(self.core.scheduler.queues.families)}"
        )
        self.check_idle()
        self.check_outputs()
        return self

    def check_idle(self):
        """Every block is free or evictable, and no table, queue or map remembers a request."""
        scheduler, kv = self.core.scheduler, self.core.scheduler.kv
        kv.check()
        assert kv.num_free == kv.num_blocks
        assert not any(kv.pool.refs)
        assert not kv.tables
        assert not kv.swapped
        queues = scheduler.queues
        for left in (queues.families, queues.waiting, queues.running, queues.swapped, queues.ended):
            assert not left
        assert not scheduler._stepper._draws
        assert not scheduler._stepper._branches
        assert not scheduler._scores
        assert not scheduler._aborted_in_flight

    def check_outputs(self):
        """One ending per request and choice; tokens and log probabilities are those of the solo run."""
        assert self.requests.keys() == self.endings.keys() | self.refusals.keys()
        assert not self.endings.keys() & self.refusals.keys()
        for (name, choice), reason in self.reasons.items():
            request = self.requests[name]
            check_tokens(request, choice, self.tokens[name, choice], reason, self.engine.model.vocab_size)
        for name, ending in self.endings.items():
            request = self.requests[name]
            counts = [len(tokens) for (owner, _), tokens in self.tokens.items() if owner == name]
            assert ending.num_output == sum(counts)
            if ending.reason is FinishReason.LENGTH:
                assert counts == [request.max_output] * request.params.n
            if request.params.prompt_logprobs is not None and any(counts):
                assert self.scores[name] == solo_scores(request), f"{name}: prompt scores"

    def ids(self, name, choice=0):
        """Token ids that a choice has emitted."""
        return [token_id for token_id, _ in self.tokens[name, choice]]

    def _on_events(self, events):
        for event in events:
            match event:
                case TokenEmitted():
                    said = self.tokens[event.request_id, event.choice]
                    assert event.index == len(said), f"{event.seq_id}: token {event.index} after {len(said)}"
                    said.append((event.token_id, event.logprobs))
                    self.first_at.setdefault(event.request_id, len(self.steps))
                case SequenceFinished():
                    key = event.request_id, event.choice
                    assert key not in self.reasons, f"{event.seq_id} ended twice"
                    self.reasons[key] = event.reason
                case Finished():
                    assert event.request.id not in self.endings, f"{event.request.id} ended twice"
                    self.endings[event.request.id] = event
                case Rejected():
                    assert event.request.id not in self.refusals, f"{event.request.id} was refused twice"
                    self.refusals[event.request.id] = event.reason
                case PromptScored():
                    assert event.request_id not in self.scores, f"{event.request_id} was scored twice"
                    assert not self.tokens[event.request_id, 0], "scores come before the first token"
                    self.scores[event.request_id] = event.logprobs
                case Admitted():
                    self.cached[event.request_id].append(event.num_cached)
                case Preempted():
                    self.num_preemptions[event.request_id] += 1
                case StepRecord():
                    self.steps.append(event)


def own_ids(name, num_tokens):
    """A prompt that no other name shares."""
    seed = sum(ord(letter) * 31**at for at, letter in enumerate(name))
    return [3 + (seed * 7 + at * at * 13 + at) % 250 for at in range(num_tokens)]
