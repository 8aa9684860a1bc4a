"""Step times: rooflines, profiles, fits, and what makes them impossible."""

import json
from dataclasses import replace

import pytest

from headway.core import Batch, Draw, Lane, SamplingParams
from headway.errors import BadSetting
from headway.sim import (
    HARDWARE_CARDS,
    MODEL_CARDS,
    Calibration,
    Fitted,
    LinearLayer,
    Load,
    Parallel,
    Profiled,
    Roofline,
    Site,
    calibrated_plant,
    hardware_card,
    kv_blocks,
    load_of,
    model_card,
    overheads,
    read_calibration,
    read_profile,
    write_calibration,
)
from headway.sim.curves import Curve, Grid, on_doubling_axes
from headway.sim.disaggregate import load_without_prompts
from headway.sim.vidur import ELEMENTWISE, LINEAR, read_vidur

LLAMA, A100 = model_card("Llama-3-8B"), hardware_card("A100-80")


def draw(seq_id, num_known, num_prompt):
    return Draw(seq_id, SamplingParams(), 0, 0, [1] * num_known, num_prompt, frozenset())


def roofline(model=LLAMA, hardware=A100, parallel=None, engine="cuda-graph"):
    return Roofline(model, hardware, parallel or Parallel(), overheads(engine))


def test_load_counts_rows_contexts_and_draws():
    """A lane of one token is a decode and reads its context; longer ones are prefills; waste and padding are rows."""
    decode = Lane("a", [7], 9, [0], (draw("a", 10, 4),))
    whole, chunk = Lane("b", [1] * 5, 0, [1], (draw("b", 5, 5),)), Lane("c", [1] * 6, 3, [2], (), None, 2)
    load = load_of(Batch(0, [decode, whole, chunk], swap_in=[(0, 1)], num_wasted_rows=3))
    assert load == Load(1 + 5 + 6 + 2 + 3, 2, 1, 10, [(5, 0), (6, 3)], 1)


def test_a_decoder_that_is_handed_kv_computes_one_token_of_it():
    """The prompt came with its KV: its last token is a decode; a sequence that computes its answer again pays."""
    fresh = Lane("a", [1] * 8, 0, [0], (draw("a", 8, 8),))
    again = Lane("b", [1] * 9, 0, [1], (draw("b", 9, 4),))
    load = load_without_prompts(Batch(0, [fresh, again, Lane("c", [1], 4, [2], (draw("c", 5, 3),))]))
    assert load == Load(1 + 9 + 1, 3, 2, 8 + 5, [(9, 0)], 0)


@pytest.mark.parametrize("name", HARDWARE_CARDS)
def test_rooflines_never_fall(name):
    """More rows, more context, longer prefills and more draws never make a step shorter."""
    cost = roofline(hardware=hardware_card(name))
    by_rows = [cost.predict(Load(num, 1, 1, 100)) for num in range(1, 700, 7)]
    assert by_rows == sorted(by_rows)
    assert cost.predict(Load(8, 8, 8, 9000)) > cost.predict(Load(8, 8, 8, 8000))
    assert cost.predict(Load(64, 1, 0, 0, [(64, 512)])) > cost.predict(Load(64, 1, 0, 0, [(64, 0)]))
    assert cost.predict(Load(8, 8, 8, 800, num_swapped=9)) > cost.predict(Load(8, 8, 8, 800))


def test_a_tile_more_costs_a_step():
    """One token beyond a tile costs as much as a whole tile beyond it (tile quantisation)."""
    layer = LinearLayer(model_card("Llama-2-70B"), hardware_card("H100"))
    assert layer.at(513) == layer.at(640) > layer.at(512) == layer.at(385)


def test_prefill_times_of_a_published_engine():
    """Yi-34B on two A100s, eager: within 15 % of the measured 105.6, 214.3 and 366.0 ms (Sarathi's artefact)."""
    cost = roofline(model_card("Yi-34B"), A100, Parallel(tensor=2), "eager")
    for num, measured_ms in ((512, 105.6), (1024, 214.3), (2048, 366.0)):
        assert cost.predict(Load(num, 1, 0, 0, [(num, 0)])) * 1e3 == pytest.approx(measured_ms, rel=0.15)


def test_tensor_parallel_splits_the_work_and_pays_for_the_link():
    """Four devices are faster than one and slower than a fourth of it; a pipeline stage has a fourth of the layers."""
    load = Load(512, 1, 0, 0, [(512, 0)])
    one = roofline(model_card("Llama-3-70B"), A100).predict(load)
    four = roofline(model_card("Llama-3-70B"), A100, Parallel(tensor=4)).predict(load)
    stage = roofline(model_card("Llama-3-70B"), A100, Parallel(pipeline=4)).predict(load)
    assert one / 4 < four < one / 2
    assert one / 4 < stage < one / 3


def test_memory_holds_what_weights_leave():
    """An A100-80 at 0.9 holds about 430,000 tokens of Llama-3-8B; a 70B model does not fit one at all."""
    assert 400_000 < 16 * kv_blocks(LLAMA, A100, Parallel()) < 460_000
    with pytest.raises(
        BadSetting, match=r"Llama-3-70B takes 141 GB; 1 × A100-80 leave no room for KV: take a smaller model"
    ):
        Site(model=model_card("Llama-3-70B"), hardware=A100).plant()
    assert Site(model=model_card("Llama-3-70B"), hardware=A100, parallel=Parallel(tensor=4)).plant().num_blocks > 1000


def test_heads_are_shared_evenly():
    """Three devices cannot share 32 heads; no engine would start so."""
    with pytest.raises(BadSetting, match="tensor parallelism is 3, but Llama-3-8B has 32 attention heads"):
        Site(model=LLAMA, hardware=A100, parallel=Parallel(tensor=3))


@pytest.mark.parametrize(
    ("name", "billions", "kv_bytes"),
    [("OPT-13B", 12.9, 819_200), ("Llama-2-70B", 69, 327_680), ("Llama-3-8B", 8.0, 131_072), ("Yi-34B", 34.4, 245_760),
     ("Falcon-180B", 180, 163_840), ("Qwen3-8B", 8.2, 147_456), ("Qwen3-32B", 32.8, 262_144)],
)  # fmt: skip
def test_model_cards_have_the_published_sizes(name, billions, kv_bytes):
    """Weights within 3 % of the published number, KV per token exactly."""
    card = model_card(name)
    assert card.num_params / 1e9 == pytest.approx(billions, rel=0.03)
    assert card.token_kv_size == kv_bytes


def test_devices_on_a_faster_bus_reduce_faster():
    """Two RTX PRO 6000 sum a full batch over PCIe 5 at least twice as fast as two RTX 4090 over PCIe 4."""
    batch_bytes = 2048 * MODEL_CARDS["Qwen3-32B"].hidden * 2
    newer, older = (HARDWARE_CARDS[name].peer.seconds(batch_bytes) for name in ("RTXPRO6000", "RTX4090"))
    assert newer * 2 < older
    assert newer > batch_bytes / HARDWARE_CARDS["RTXPRO6000"].host.bandwidth


def test_names_are_read_as_people_write_them(tmp_path):
    """Owners, variants, case and dashes do not matter; a config.json gives the same card; the rest is refused."""
    assert model_card("meta-llama/Meta-Llama-3-8B-Instruct") is MODEL_CARDS["Llama-3-8B"]
    assert model_card("Qwen/Qwen3-32B") is MODEL_CARDS["Qwen3-32B"]
    assert hardware_card("NVIDIA GeForce RTX 4090") is hardware_card("rtx4090")
    assert hardware_card("NVIDIA RTX PRO 6000 Blackwell Server Edition") is HARDWARE_CARDS["RTXPRO6000"]
    assert hardware_card("NVIDIA A100-SXM4-40GB") is hardware_card("a100-40")
    assert hardware_card("NVIDIA H100 80GB HBM3") is hardware_card("H100")
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    card = model_card(str(tmp_path))
    assert (card.num_params, card.token_kv_size) == (LLAMA.num_params, LLAMA.token_kv_size)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_local_experts": 8}))
    with pytest.raises(BadSetting, match="mixture of experts"):
        model_card(str(tmp_path / "config.json"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": "big"}))
    with pytest.raises(BadSetting, match="hidden_size is 'big'"):
        model_card(str(tmp_path))
    for find, name in ((model_card, "GPT-9"), (hardware_card, "Z80"), (overheads, "magic")):
        with pytest.raises(BadSetting, match="known: "):
            find(name)


def test_curves_are_linear_between_samples_and_beyond():
    """Flat below the first sample, straight in between, and on as over the last half."""
    curve = Curve({1: 1.0, 3: 2.0, 5: 5.0})
    assert [curve.at(count) for count in (0, 1, 2, 3, 4, 5, 7)] == [1.0, 1.0, 1.5, 2.0, 3.5, 5.0, 7.0]


def test_stairs_go_on_climbing_beyond_the_last_sample():
    """Where the last samples stand on one stair, the slope is that of the last half; in a curve and along a grid."""
    stairs = {count: float(-(-count // 64)) for count in range(16, 513, 16)}
    assert stairs[512] == stairs[496]
    assert Curve(stairs).at(1024) == pytest.approx(16.0)
    grid = Grid({(count, each): value * each for count, value in stairs.items() for each in (1, 2)})
    assert grid.at((1024, 2)) == pytest.approx(32.0)
    assert Curve({10: 1.0, 16: 2.0}).at(22) == pytest.approx(3.0)


def test_grids_nest_and_leave_single_shots_out():
    """A ragged branch has its own axis; points off the doubling grid are dropped where most lie on it."""
    grid = Grid({(0, 0): 1.0, (0, 4): 5.0, (2, 0): 3.0})
    assert grid.at((0, 2)) == 3.0
    assert grid.at((2, 9)) == 3.0
    assert grid.at((1, 4)) == 4.0
    samples = {(16 << step,): float(step) for step in range(6)}
    assert on_doubling_axes({**samples, (54,): 9.0}, axes=(0,)) == samples
    assert on_doubling_axes({(1,): 1.0, (3,): 1.0, (5,): 1.0}, axes=(0,)) == {(1,): 1.0, (3,): 1.0, (5,): 1.0}


def profile_files(folder, *, dense="layer,tokens,time_us\nmlp,1,10\nmlp,101,20\nembedding,1,3\nlayernorm,1,1\n"):
    (folder / "p_tp1_dense.csv").write_text(dense)
    (folder / "p_tp1_per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,100\nlm_head,2,110\n")
    attention = ["0,0,1,16,5", "0,0,1,32,6", "0,0,2,16,9", "0,0,2,32,11", "16,0,0,0,4", "32,0,0,0,10"]
    attention += ["16,0,1,16,12", "16,0,1,32,13", "32,0,1,16,19", "32,0,1,32,20"]
    (folder / "p_tp1_attention.csv").write_text(
        "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + "\n".join(attention) + "\n"
    )
    return str(folder / "p")


def test_profiles_are_looked_up_layer_by_layer(tmp_path):
    """Dense per layer, norms twice, embedding once; for decodes, what attention adds beside the longest chunk."""
    cost = Profiled(read_profile(profile_files(tmp_path)), LLAMA, overheads("none"))
    once = 100e-6 + 3e-6
    assert cost.predict(Load(1, 1, 1, 24)) == pytest.approx(once + 32 * (12e-6 + 5.5e-6))
    mixed = cost.predict(Load(49, 1, 1, 32, [(16, 0), (32, 0)]))
    assert mixed == pytest.approx(once + 32 * (12e-6 + 4.8e-6 + (4 + 0 + 6 + 10) * 1e-6))


@pytest.mark.parametrize(
    ("dense", "message"),
    [("layer,tokens\nmlp,1\n", "has no column 'time_us'"), ("layer,tokens,time_us\nmlp,1,fast\n", "row 2: time_us is")],
)
def test_broken_profiles_say_where(tmp_path, dense, message):
    """A missing column and a cell that is no number are named, the latter with its row."""
    with pytest.raises(BadSetting, match=message):
        read_profile(profile_files(tmp_path, dense=dense))


def test_missing_profiles_say_which(tmp_path):
    """A degree of tensor parallelism that was not profiled is a missing file."""
    with pytest.raises(BadSetting, match=r"p_tp2_per_sequence|p_tp2_dense"):
        read_profile(profile_files(tmp_path), 2)


def test_a_calibration_survives_its_file(tmp_path):
    """What is written is read back; other files, and coefficients that cannot be, are refused."""
    fitted = Fitted(
        rows=((1, 1e-3), (8, 1e-3), (16, 3e-3)),
        lane_s=1e-5,
        drawn_s=1e-5,
        context_s=1e-8,
        attend_s=1e-9,
        host_s=1e-4,
        between_share=0.4,
    )
    assert fitted.between_s(Load(12, 2, 1, 100, [(11, 0)])) == pytest.approx(0.4e-4)
    assert fitted.predict(Load(12, 2, 1, 100, [(11, 0)])) == pytest.approx(2e-3 + 2e-5 + 2e-5 + 1e-6 + 60.5e-9 + 1e-4)
    assert fitted.predict(Load(24)) == pytest.approx(5e-3 + 1e-4)
    path = tmp_path / "fit.json"
    calibration = Calibration(
        model=fitted, num_steps=7, median_error=0.03, p95_error=0.1, about={"model": "m"}, engine={"num_blocks": 9}
    )
    write_calibration(calibration, path)
    assert read_calibration(path) == calibration
    text = path.read_text()
    for name, value, message in (
        ("lane_s", -1, "lane_s is -1"),
        ("between_share", 1.5, "between_share is 1.5; a share is at most 1"),
        ("rows", [[1, 2.0], [4, 1.0]], "must grow"),
        ("rows", [], "must be a list"),
        ("rows", [[1, "x"]], "rows is 'x'"),
    ):
        document = json.loads(text)
        document["coefficients"][name] = value
        path.write_text(json.dumps(document))
        with pytest.raises(BadSetting, match=message):
            read_calibration(path)
    path.write_text(json.dumps({**json.loads(text), "coefficients": {"rows": [[1, 0.0], [4, 1.0]], "host_s": 1e-3}}))
    with pytest.raises(BadSetting, match="takes no time"):
        read_calibration(path)
    path.write_text(text.replace('"version": 2', '"version": 1'))
    with pytest.raises(BadSetting, match="version 1 of step times"):
        read_calibration(path)
    path.write_text(text.replace('"version": 2', '"version": 2, "version": 2'))
    with pytest.raises(BadSetting, match=r"fit\.json: the key 'version' is there twice"):
        read_calibration(path)
    path.write_text("{}")
    with pytest.raises(BadSetting, match="headway calibrate"):
        read_calibration(path)


def test_a_calibrated_engine_brings_its_sizes():
    """Blocks, block size and context are the engine's, unless others are asked for; swaps take as long as measured."""
    calibration = Calibration(
        model=Fitted(rows=((1, 1e-3),), swap_s=1e-5),
        num_steps=7,
        median_error=0.0,
        p95_error=0.0,
        engine={"num_blocks": 100, "block_size": 8, "max_model_len": 512},
    )
    plant = calibrated_plant(calibration)
    assert (plant.num_blocks, plant.block_size, plant.num_host_blocks, plant.context) == (100, 8, 0, 512)
    other = calibrated_plant(calibration, block_size=16, context=99)
    assert (other.num_blocks, other.block_size, other.context) == (50, 16, 99)
    assert plant.cost.predict(Load(num_swapped=3)) == pytest.approx(3e-5)
    with pytest.raises(BadSetting, match="calibration does not say num_blocks"):
        calibrated_plant(replace(calibration, engine={}))


def test_only_one_source_of_step_times():
    """Two sources of step times contradict each other."""
    with pytest.raises(BadSetting, match="profile and vidur both give step times"):
        Site(model=LLAMA, hardware=A100, profile="a", vidur="b")


@pytest.mark.parametrize(
    "load", [Load(64, 64, 64, 64 * 512), Load(512, 1, 0, 0, [(512, 512)])], ids=["decode", "prefill"]
)
def test_vidur_tables_make_a_cost(shared_data, tmp_path, load):
    """vidur's tables of Llama-2-70B on two A100s give a step between half and twice the roofline's."""
    folder = shared_data / "gpu"
    (tmp_path / "mlp.csv").symlink_to(folder / "vidur_a100_meta-llama_Llama-2-70b-hf_mlp.csv")
    (tmp_path / "attention.csv").symlink_to(folder / "vidur_a100_llama2-70b_tp2_attention.csv")
    site = Site(model=model_card("Llama-2-70B"), hardware=A100, parallel=Parallel(tensor=2), vidur=str(tmp_path))
    assert 0.5 < site.cost().predict(load) / replace(site, vidur=None).cost().predict(load) < 2.0


def vidur_files(start, long):
    """The same times under both spellings of columns, at one degree of tensor parallelism beside a slower one."""
    tensor, name = ("num_tensor_parallel_workers", "time_stats.{}.median") if long else ("tp", "{}_ms")
    products = [operator.removesuffix("_ms") for operator in dict.fromkeys((*LINEAR, *ELEMENTWISE, "emb_ms"))]
    rows = [[tensor, "num_tokens", *(name.format(product) for product in products)]]
    rows += [[tp, num, *([tp * num / 100] * len(products))] for tp in (1, 2) for num in (1, 100)]
    start.with_name(f"{start.name}_mlp.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    attention = ["is_prefill", "batch_size", "prefill_chunk_size", "kv_cache_size"]
    rows = [[*attention, *(name.format(kind) for kind in ("attn_prefill", "attn_decode")), *([tensor] if long else [])]]
    degrees = (1, 2) if long else (2,)
    rows += [["True", 1, chunk, 0, tp * chunk, "", *([tp] if long else [])] for tp in degrees for chunk in (1, 100)]
    rows += [["False", num, 0, 8, "", tp * num, *([tp] if long else [])] for tp in degrees for num in (1, 100)]
    start.with_name(f"{start.name}_attention.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    return str(start)


def test_vidur_columns_have_two_spellings(tmp_path):
    """As vidur's profiler writes them and in short; a table of attention with degrees is read at the one asked for."""
    long, short = (read_vidur(vidur_files(tmp_path / str(is_long), is_long), 2) for is_long in (True, False))
    assert long.layer.at(50) == short.layer.at(50) == pytest.approx(10 * 1.0e-3)
    for point in ((50, 0, 0, 0), (0, 0, 50, 8)):
        assert long.attention.at(point) == short.attention.at(point) == pytest.approx(100e-3)
    with pytest.raises(BadSetting, match="no rows for tensor parallelism 4"):
        read_vidur(str(tmp_path / "True"), 4)
