"""Random schedules for a `Trial`: shared prefixes, choices, salts, aborts, broken steps, a pool far too small."""

import random

from headway.core import FinishReason
from headway.errors import ExecutorFault
from tests.support.trial import Trial


class Storm:
    """One schedule, the same for the same seed."""

    def __init__(self, seed, *, policy="vllm", settings=None, **engine):
        self.random = random.Random(seed)
        size = self.random.choice((1, 2, 4, 5))
        size = engine.pop("block_size", size)
        self.longest = self.random.choice((24, 40))
        num_blocks = -(-self.longest // size) + self.random.randint(1, 6)
        self.num_faults = 0
        self.trial = Trial(
            policy=policy,
            policy_settings=settings or {},
            num_blocks=num_blocks,
            block_size=size,
            max_model_len=None,
            prefix_cache=self.random.choice(("hashed", "radix", "none")),
            max_num_batched_tokens=self.random.choice((7, 16, 64)) if engine.pop("is_cut", True) else 64,
            host_memory=self.random.choice((0, num_blocks * size, 4 * num_blocks * size)),
            fault=self._fault,
            **engine,
        )
        self._prefixes = [[self.random.randrange(3, 200) for _ in range(30)] for _ in range(2)]

    def run(self, num_moves=40):
        """Move by move, then to the end, where everything is held against the solo runs."""
        for _ in range(num_moves):
            what = self.random.random()
            if what < 0.3:
                self._submit()
            elif what < 0.4:
                self._abort()
            else:
                self.trial.step()
        self.trial.finish()
        return self.trial

    def _submit(self):
        chance, trial = self.random, self.trial
        name = f"r{len(trial.requests)}"
        limit = min(self.longest, trial.engine.limits.max_model_len)
        max_tokens = min(chance.choice((1, 3, 6, 14)), limit - 1)
        prefix = chance.choice(self._prefixes)[: chance.choice((0, 1, 3, 4, 5, 8, 9, 10, 15, 16, 20))]
        own = [chance.randrange(3, 200) for _ in range(chance.choice((0, 1, 4, 11)))]
        prompt = [*prefix, *own][: max(1, limit - max_tokens)] or [5]
        params = {"n": chance.choice((1, 1, 1, 2, 3)), "logprobs": chance.choice((None, 0))}
        if chance.random() < 0.3:
            params |= {"temperature": 1.0, "seed": chance.randrange(3)}
        if chance.random() < 0.2:
            params["prompt_logprobs"] = 0
        if chance.random() < 0.2:
            params["ignore_eos"] = False
        extras = {"cache_salt": chance.choice(("", "", "", "s")), "priority": chance.randrange(3)}
        extras["tenant"] = chance.choice("uv")
        trial.submit(name, prompt, max_tokens, extras=extras, **params)

    def _abort(self):
        living = [name for name in self.trial.requests if name not in self.trial.endings]
        if living:
            self.trial.abort(self.random.choice(living))

    def _fault(self, batch):
        if not batch.lanes or self.random.random() > 0.04:
            return None
        self.num_faults += 1
        culprits = (self.random.choice(batch.lanes).seq_id,) if self.random.random() < 0.7 else ()
        return ExecutorFault("the test broke this step", seq_ids=culprits)


def reasons(trial):
    """How often requests ended for each reason; refused ones apart."""
    counts = dict.fromkeys(FinishReason, 0)
    for ending in trial.endings.values():
        counts[ending.reason] += 1
    return counts
