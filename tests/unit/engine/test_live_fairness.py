"""The fairness bound on the engine that serves: its thread, its clients, its events."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from headway.core import SamplingParams, StepRecord
from headway.engine import AsyncLLM
from tests.support.engines import simulated_engine
from tests.support.fairness import bound, drift


@pytest.mark.parametrize("num_blocks", [40, 200])
async def test_two_backlogged_tenants_keep_to_the_bound(num_blocks):
    """One sends long prompts, the other short ones with long answers: services drift by VTC's bound and the lane's."""
    engine = simulated_engine(policy="headway", num_blocks=num_blocks, max_num_batched_tokens=64, max_num_seqs=8)
    shapes = {"u": (90, 4), "v": (8, 20)}
    requests = [
        SimpleNamespace(id=f"{tenant}{at}", prompt=num_prompt, output=num_output, tenant=tenant)
        for at in range(30)
        for tenant, (num_prompt, num_output) in shapes.items()
    ]
    records = []
    async with AsyncLLM(engine=engine) as llm:
        llm.add_listener(lambda events: records.extend(one for one in events if isinstance(one, StepRecord)))

        async def ask(request):
            params = SamplingParams(max_tokens=request.output, ignore_eos=True)
            prompt = random.Random(request.id).choices(range(5, 95), k=request.prompt)
            return [delta async for delta in llm.submit(prompt, params, request_id=request.id, tenant=request.tenant)]

        await asyncio.gather(*map(ask, requests))
    scene = SimpleNamespace(requests=requests, num_blocks=num_blocks, block_size=4)
    assert {name for record in records for name in record.grants} == {request.id for request in requests}
    assert drift(scene, records) <= bound(scene) + 4 * 90
