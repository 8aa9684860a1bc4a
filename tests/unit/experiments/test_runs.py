"""Experiments in miniature: the direction of each paper's claim, in a second or two."""

from headway.experiments import orca, paged, request_level, stall_free
from headway.experiments.demand import demand, sample, uniform
from headway.experiments.probing import mean_token_latency, run
from headway.sim import CostModel, Load, Site, hardware_card, model_card, overheads


def test_static_batches_waste_more_the_larger_they_are():
    """Rows of ended sequences, counted from the steps themselves."""
    plant = Site(
        model=model_card("Llama-3-8B"), hardware=hardware_card("A100-80"), overheads=overheads("ideal")
    ).plant()
    small, large = (request_level.measure_waste(sample("azure_conv")[:20], plant, rows) for rows in (2, 16))
    assert 0.0 < small.of_decoding < large.of_decoding < 1.0
    assert small.decoded == large.decoded


def test_a_batch_of_one_wastes_nothing():
    """Nobody waits for anybody."""
    plant = Site(
        model=model_card("Llama-3-8B"), hardware=hardware_card("A100-80"), overheads=overheads("ideal")
    ).plant()
    waste = request_level.measure_waste(sample("azure_conv")[:4], plant, 1)
    assert (waste.ended, waste.padding) == (0, 0)


def test_one_batch_passes_all_stages():
    """A static engine's step takes as long as its stages together."""

    class Flat(CostModel):
        def predict(self, load):
            return 1.0

    assert orca.OneBatch(Flat(), 2).predict(Load()) == 2.0


def test_paging_serves_more_at_once_than_reservations():
    """At the same rate the latency per token is lower."""
    asked = demand(uniform(24, (50, 200), (50, 300)))
    plant = paged._plant(0.3e-3)
    by_name = {system.name: system for system in paged.SYSTEMS}
    slow, fast = (
        mean_token_latency(run(asked.items(2.0), plant, system.policy, **system.settings))
        for system in (by_name["Orca (Max)"], by_name["vLLM"])
    )
    assert fast < slow


def test_chunked_prefill_shortens_the_longest_gaps():
    """The largest gap of all streams under load, against prompts that run alone."""
    asked = demand(stall_free.lengths()[:25])
    plant = stall_free.plant(stall_free.DEPLOYMENTS[0])
    gaps = []
    for name in ("vLLM", "Sarathi-Serve, 512"):
        policy, settings = stall_free.SYSTEMS[name]
        record = run(asked.items(1.0), plant, policy, **settings)
        gaps.append(max(gap for request in record.requests for gap in request.itl_s))
    assert gaps[1] < 0.5 * gaps[0]
