"""Fidelity checks: on the measurements that are shared, and on made-up ones whose truth is known."""

import json

import pytest

from headway.cli.main import main
from headway.errors import BadSetting
from headway.fidelity import check_gpu, check_operators
from headway.fidelity.measured import Tick, read_run
from headway.fidelity.sharing import shared_blocks
from headway.report import StepSample

NAME = "RTX4090_Llama-3.1-8B"


def test_matrix_products_match_the_profiles(shared_data):
    """Every device keeps its bound over all of its 7B and 70B rows."""
    checks = {check.hardware: check for check in check_operators(shared_data / "gpu")}
    assert set(checks) == {"A100-80", "A40", "H100"}
    assert all(check.is_within and check.num_rows > 1000 for check in checks.values())


@pytest.mark.slow
def test_a_recorded_run_of_vllm_is_simulated_within_three_percent(shared_data):
    """TTFT, TPOT and latency of 300 requests, mean to P99."""
    check = check_gpu(f"{shared_data}/gpu/prof_{NAME}", f"{shared_data}/gpu/vllm_{NAME}")
    assert len(check.rows) == 12
    assert check.is_within, [(row.metric, row.figure, row.error) for row in check.rows]


def test_another_run_needs_no_more_than_its_files(shared_data, tmp_path):
    """Without a report of its KV cache, and with another model on two devices, a run is read and simulated alike."""
    (tmp_path / "run_meta.json").write_text(
        json.dumps({"model": "Qwen/Qwen3-32B", "engine_kwargs": {"tensor_parallel_size": 2, "max_num_seqs": 64}})
    )
    (tmp_path / "run_requests.csv").write_text(
        "request,prompt_tokens,output_tokens,workload_arrival_s,queued_s,scheduled_s,first_token_s,last_token_s\n"
        "a,100,5,3.0,0,0,0.1,0.3\nb,300,4,3.2,0,0,0.4,0.6\n"
    )
    check = check_gpu(f"{shared_data}/gpu/prof_RTXPRO6000_Qwen3-32B", str(tmp_path / "run"), bound=100.0)
    assert check.is_within
    assert check.settings["hardware"] == "RTXPRO6000"
    assert check.settings["num_blocks"] > 5000
    measured = read_run(str(tmp_path / "run"))
    assert [request.arrival_s for request in measured.requests] == pytest.approx([0.0, 0.2])
    assert measured.requests[1].tpot_s == pytest.approx(0.2 / 3)


def test_a_run_without_chunked_prefill_takes_prompts_whole(shared_data, tmp_path):
    """With it, part of a short prompt rides along and delays the long one; without, a step has room for any prompt."""
    (tmp_path / "run_requests.csv").write_text(f"{HEADER}a,1536,2,0.0,0.1,0.3\nb,1024,2,0.0,0.4,0.6\n")
    means, budgets = [], []
    for engine in (
        {"max_num_batched_tokens": 2048},
        {"max_num_batched_tokens": 2048, "enable_chunked_prefill": False, "enable_prefix_caching": None},
        {"max_model_len": 4096, "enable_chunked_prefill": False},
    ):
        meta = {"model": "meta-llama/Llama-3.1-8B", "engine_kwargs": engine}
        (tmp_path / "run_meta.json").write_text(json.dumps(meta))
        check = check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"))
        assert check.settings["prefix_cache"] == "hashed"
        budgets.append(check.settings["max_num_batched_tokens"])
        means.append(next(row.simulated for row in check.rows if (row.metric, row.figure) == ("TTFT", "mean")))
    assert budgets == [2048, 2048, 4096]
    assert means[1] < 0.95 * means[0]
    assert means[2] > means[0]


def test_requests_that_the_settings_leave_no_room_for_are_counted(shared_data, tmp_path):
    """They are among the measured only, and the figures are of different requests."""
    (tmp_path / "run_requests.csv").write_text(f"{HEADER}a,100,5,3.0,0.1,0.3\nb,900,5,3.0,0.1,0.3\n")
    meta = {"model": "meta-llama/Llama-3.1-8B", "engine_kwargs": {"max_model_len": 512}}
    (tmp_path / "run_meta.json").write_text(json.dumps(meta))
    notes = check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run")).notes
    assert any(note.startswith("1 of 2 requests do not fit") for note in notes)


def test_memory_that_a_run_does_not_report_is_what_vllm_would_have_found(shared_data, tmp_path):
    """Without its KV cache in the meta file the recorded run gets the blocks that it had, to one in a thousand."""
    meta = json.loads((shared_data / f"gpu/vllm_{NAME}_meta.json").read_text())
    had = meta.pop("kv_cache")["num_gpu_blocks"]
    (tmp_path / "run_meta.json").write_text(json.dumps(meta))
    rows = (shared_data / f"gpu/vllm_{NAME}_requests.csv").read_text().splitlines()
    (tmp_path / "run_requests.csv").write_text("\n".join(rows[:3]))
    check = check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"), bound=100.0)
    assert check.settings["num_blocks"] == pytest.approx(had, rel=1e-3)


def test_files_that_are_missing_or_do_not_belong_together_are_told(shared_data, tmp_path, capsys):
    """Fewer rows than the meta file names, no record of memory, a profile of something else: in table and JSON."""
    meta = {"model": "meta-llama/Llama-3.1-8B", "num_requests": 1}
    meta_file, requests = tmp_path / "run_meta.json", tmp_path / "run_requests.csv"
    meta_file.write_text(json.dumps(meta))
    requests.write_text(f"{HEADER}a,100,5,3.0,0.1,0.3\n")
    (tmp_path / "run_timeseries.csv").write_text("t,running,waiting,kv_cache_pct\n0.1,1,0,1.0\n")
    prefixes = f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run")
    assert check_gpu(*prefixes).notes == []
    meta_file.write_text(json.dumps({**meta, "num_requests": 9, "hardware": {"device_name": "NVIDIA H100"}}))
    (tmp_path / "run_timeseries.csv").unlink()
    few, absent, other = check_gpu(*prefixes).notes
    assert f"{requests} has 1 requests and {meta_file} names 9" in few
    assert "run_timeseries.csv is absent or empty" in absent
    assert "is of RTX4090, the run of H100" in other
    command = ["fidelity", "gpu", "--profile", prefixes[0], "--run", prefixes[1], "--bound", "1000"]
    assert main(command) == 0
    assert f"\n! {few}\n! {absent}\n! {other}\n" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [few, absent, other]
    engine = {"kv_cache_dtype": "fp8", "quantization": None, "long_prefill_token_threshold": 0}
    meta_file.write_text(json.dumps({**meta, "model": "Qwen/Qwen3-8B", "engine_kwargs": engine}))
    model, dtype = check_gpu(*prefixes).notes[-2:]
    assert "is of meta-llama/Llama-3.1-8B, the run of Qwen3-8B" in model
    assert dtype == f"{meta_file}: kv_cache_dtype is 'fp8', which is not simulated"


def test_a_model_that_does_not_fit_is_no_table_of_nothing(shared_data, tmp_path):
    """28 GB of weights in 24 GB: the meta file, the model and the device are told."""
    meta = {"model": "Qwen/Qwen3-14B", "hardware": {"device_name": "NVIDIA GeForce RTX 4090"}}
    (tmp_path / "run_meta.json").write_text(json.dumps(meta))
    (tmp_path / "run_requests.csv").write_text(
        "request,prompt_tokens,output_tokens,workload_arrival_s,first_token_s,last_token_s\na,100,5,3.0,0.1,0.3\n"
    )
    with pytest.raises(BadSetting, match=r"run_meta.json has no .*weights of Qwen3-14B .* 0.9 of 1 x RTX4090"):
        check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"))
    (tmp_path / "run_meta.json").write_text(json.dumps({**meta, "kv_cache": {"num_gpu_blocks": 1}}))
    with pytest.raises(BadSetting, match=r"run_meta.json: kv_cache.num_gpu_blocks is 1; it must be at least 2"):
        check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"))
    (tmp_path / "run_meta.json").write_text(json.dumps({**meta, "kv_cache": {"num_gpu_blocks": 5}}))
    with pytest.raises(BadSetting, match=r"run_meta.json: not one of 1 requests fits 4 blocks of 16 tokens"):
        check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"))
    (tmp_path / "run_meta.json").write_text(
        json.dumps({**meta, "kv_cache": {"num_gpu_blocks": 5, "enable_prefix_caching": "no"}})
    )
    with pytest.raises(BadSetting, match=r"run_meta.json: enable_prefix_caching is 'no'; it must be true, false or"):
        check_gpu(f"{shared_data}/gpu/prof_{NAME}", str(tmp_path / "run"))


def test_a_meta_file_that_says_nonsense_is_named(tmp_path):
    """File, field and value: a folder holds many runs."""
    (tmp_path / "run_meta.json").write_text(json.dumps({"model": "x", "engine_kwargs": {"max_num_seqs": "many"}}))
    (tmp_path / "run_requests.csv").write_text(
        "request,prompt_tokens,output_tokens,workload_arrival_s,first_token_s,last_token_s\na,100,5,3.0,0.1,0.3\n"
    )
    with pytest.raises(BadSetting, match=r"run_meta\.json: max_num_seqs is 'many'"):
        read_run(str(tmp_path / "run")).setting("max_num_seqs", 256)
    (tmp_path / "run_meta.json").write_text(json.dumps({"model": "x", "engine_kwargs": [1]}))
    with pytest.raises(BadSetting, match=r"run_meta\.json: engine_kwargs is \[1\]; it must be a JSON object"):
        read_run(str(tmp_path / "run"))
    (tmp_path / "run_meta.json").write_text('{"model": "x", "model": "y"}')
    with pytest.raises(BadSetting, match=r"run_meta\.json: the key 'model' is there twice in one table; remove one"):
        read_run(str(tmp_path / "run"))


def test_shared_blocks_come_from_memory_alone():
    """The largest saving at equal queues before the first preemption; without equal queues none."""
    steps = [
        StepSample(start_s=1.0, duration_s=0.1, num_running=3, num_waiting=0, kv_use=0.30),
        StepSample(start_s=2.0, duration_s=0.1, num_running=5, num_waiting=1, kv_use=0.60),
        StepSample(start_s=3.0, duration_s=0.1, num_running=9, num_waiting=1, kv_use=0.99, num_preempted=1),
    ]
    ticks = [Tick(1.2, 3, 0, 0.28), Tick(2.2, 5, 1, 0.55), Tick(3.5, 9, 1, 0.10), Tick(2.5, 7, 1, 0.10)]
    assert shared_blocks(ticks, steps, 100) == 5
    assert shared_blocks(ticks[3:], steps, 100) == 0


def test_missing_and_broken_files_are_named(tmp_path):
    """A run that is not there, and one with a broken row."""
    with pytest.raises(BadSetting, match="cannot read"):
        read_run(str(tmp_path / "nothing"))
    with pytest.raises(BadSetting, match="no vidur_DEVICE_MODEL_mlp"):
        check_operators(tmp_path)


HEADER = "request,prompt_tokens,output_tokens,workload_arrival_s,first_token_s,last_token_s\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b,9,3,0.1,,2", "row 3: first_token_s is ''; it must be a number ≥ 0"),
        ("b,9,3,0.1,1,nan", "row 3: last_token_s is 'nan'"),
        ("b,9.5,3,0.1,1,2", "row 3: prompt_tokens is '9.5'; it must be a whole number ≥ 0"),
        ("b,9,0,0.1,1,2", "row 3: output_tokens is 0; a request has at least one token of each"),
        ("b,9,3,0.1,2,1", "row 3: last_token_s is 1, before first_token_s, which is 2"),
        ("b,9", "row 3: it does not have the header's 6 columns"),
    ],
)
def test_a_broken_row_of_a_run_is_named(tmp_path, row, message):
    """File, row, column, and what is allowed."""
    (tmp_path / "r_requests.csv").write_text(f"{HEADER}a,5,2,0,1,2\n{row}\n")
    with pytest.raises(BadSetting, match=f"r_requests.csv, {message}"):
        read_run(str(tmp_path / "r"))
