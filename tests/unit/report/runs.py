"""Runs made by hand, whose numbers are known without measuring."""

from headway.core import Slo
from headway.report import Outcome, RequestRecord, RunRecord


def request(at_s=0.0, *, ttft_s=0.1, gap_s=0.01, num_output=11, delay_s=0.0, num_prompt=100, **fields):
    """A request whose first token comes `ttft_s` after it was due, the others every `gap_s`."""
    times = [at_s + ttft_s + k * gap_s for k in range(num_output)]
    settings = {
        "id": f"r{at_s}",
        "intended_s": at_s,
        "sent_s": at_s + delay_s,
        "outcome": Outcome.OK,
        "num_prompt": num_prompt,
        "num_output": num_output,
        "first_s": times[0] if times else None,
        "last_s": times[-1] if times else None,
        "token_s": times,
    }
    return RequestRecord(**(settings | fields))


def refused(at_s=0.0, **fields):
    """A request that was turned away at once."""
    settings = {"num_output": 0, "outcome": Outcome.REFUSED, "status": 429, "reason": "full", "closed_s": at_s + 0.001}
    return request(at_s, **(settings | fields))


def run_of(requests, **fields):
    """A run of these requests, as long as they took."""
    return RunRecord(requests=requests, **({"duration_s": max((r.end_s for r in requests), default=0.0)} | fields))


def steady_run(num_requests=100, **fields):
    """One request every 0.1 s, all alike."""
    return run_of([request(k / 10, **fields) for k in range(num_requests)])


TIGHT = Slo(ttft_s=0.2, tpot_s=0.02, e2e_s=1.0)
