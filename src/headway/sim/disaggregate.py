"""Prompts on some replicas, answers on others: what the second kind sees, and what the way between costs."""

from __future__ import annotations

from dataclasses import replace

from headway.core import Batch
from headway.sim.hardware import Link
from headway.sim.load import Load, load_of
from headway.sim.modelcard import ModelCard
from headway.sim.plant import Plan, Plant
from headway.sim.simulator import HandOver

_NO_BUDGET = 1 << 20


def handed_over(model: ModelCard, link: Link) -> HandOver:
    """The price of moving a prompt's KV over a link; it starts when the first token is out, and blocks nobody."""
    return HandOver(fixed_s=link.latency_s, token_s=model.token_kv_size / link.bandwidth)


def decoding(plant: Plant) -> Plant:
    """The same devices, receiving KV instead of computing it: see `load_without_prompts`."""
    return replace(plant, load=load_without_prompts)


def decoding_plan(plan: Plan) -> Plan:
    """The same policy without a token budget, since tokens that arrive with their KV cost no step any time."""
    return replace(plan, defaults={**plan.defaults, "max_num_batched_tokens": _NO_BUDGET})


def load_without_prompts(batch: Batch) -> Load:
    """A batch's load where prompts came with their KV: their last token alone is computed, as in any decode.

    A sequence that was preempted after its first token computes all of it again, and pays for it.
    """
    load = load_of(batch)
    load.prefills = []
    for lane in batch.lanes:
        num, stop = len(lane.token_ids), lane.start + len(lane.token_ids)
        if num == 1:
            continue
        if lane.draws and len(lane.draws[0].token_ids) == lane.draws[0].num_prompt:
            load.num_tokens -= num - 1
            load.num_decodes += 1
            load.decode_context += stop
        else:
            load.prefills.append((num, lane.start))
    return load
