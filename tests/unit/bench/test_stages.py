"""A step's profile: stages of the native executor, stepped by the real engine over a tiny model."""

import json

import pytest

from headway.cli.main import main
from headway.engine import EngineConfig, build_engine
from headway.errors import BadSetting
from tests.support.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


def build(tiny_path, step_tokens):
    return build_engine(
        EngineConfig(
            model=str(tiny_path), prefix_cache="none", num_blocks=64, max_num_batched_tokens=step_tokens, threads=2
        )
    )


@pytest.fixture
def engine(tiny_path):
    built = build(tiny_path, 16)
    yield built
    built.core.executor.close()


@pytest.fixture
def engine_of_64(tiny_path):
    built = build(tiny_path, 64)
    yield built
    built.core.executor.close()


def test_stages_add_up_to_the_step(engine):
    """Every second of a step is in exactly one stage, inside the native call and outside."""
    from headway.bench.stages import StepProfiler

    profiler = StepProfiler(engine)
    for found in (profiler.decode(3, 20, 4), profiler.prefill(40, 2)):
        assert sum(stage.seconds for stage in found.stages) == pytest.approx(found.seconds)
        assert all(stage.seconds >= 0.0 for stage in found.stages)
        timed = {stage.name for stage in found.stages if stage.seconds > 0.0}
        assert {"embed", "norm", "qkv", "append", "attend", "output", "gate_up", "gate", "down", "head"} <= timed
    assert not engine.core.has_work
    engine.core.check()


def test_products_and_bytes_are_those_of_the_model(engine):
    """Matrices count rows x weights, and their bytes once per step; attention counts what each row sees."""
    from headway.bench.stages import StepProfiler

    model = engine.model
    stages = {stage.name: stage for stage in StepProfiler(engine).prefill(40, 1).stages}
    down = model.hidden_size * model.ffn_size * model.num_layers
    assert (stages["down"].products, stages["down"].num_bytes) == (40 * down, 3 * down)  # 16 + 16 + 8 tokens
    assert stages["head"].products == model.vocab_size * model.hidden_size
    assert stages["attend"].products == 2 * model.num_heads * model.head_dim * model.num_layers * (40 * 41 // 2)


@pytest.mark.parametrize(
    ("num_tokens", "last_rows", "last_seen", "passes"),
    [(100, 36, sum(range(65, 101)), 1), (140, 12, sum(range(129, 141)), 1), (128, 1, 128, 1), (63, 63, 63 * 32, 1)],
)
def test_rows_that_the_last_layer_leaves_out_count_for_nothing(engine_of_64, num_tokens, last_rows, last_seen, passes):
    """A step of many rows takes only the prompt's last one through what is behind the last layer's keys and values."""
    from headway.bench.stages import StepProfiler

    model = engine_of_64.model
    stages = {stage.name: stage for stage in StepProfiler(engine_of_64).prefill(num_tokens, 1).stages}
    num_steps, others = -(-num_tokens // 64), model.num_layers - 1
    down, query = model.hidden_size * model.ffn_size, model.num_heads * model.head_dim
    assert stages["down"].products == down * (others * num_tokens + last_rows)
    assert stages["down"].num_bytes == down * (others * num_steps + passes)
    qkv = model.hidden_size * (query + 2 * model.num_kv_heads * model.head_dim)
    assert stages["qkv"].products == qkv * model.num_layers * num_tokens
    seen = num_tokens * (num_tokens + 1) // 2
    assert stages["attend"].products == 2 * query * (others * seen + last_seen)


def test_a_step_that_nobody_times_leaves_the_sums_alone(engine):
    """Times are added while they are asked for, and not afterwards."""
    from headway.bench.stages import StepProfiler
    from headway.executor.native import StepTimes

    times = StepTimes()
    engine.core.executor.time_into(times)
    StepProfiler(engine).prefill(8, 1)  # takes the times for itself, and lets go
    assert times.call_s == 0.0


@pytest.mark.parametrize(("num_seqs", "context", "why"), [(1, 4, "no room"), (1, 10_000, "holds"), (99, 40, "fewer")])
def test_what_cannot_run_is_refused(engine, num_seqs, context, why):
    """No room before the timed steps, more than a sequence holds, more sequences than the cache holds."""
    from headway.bench.stages import StepProfiler

    with pytest.raises(BadSetting, match=why):
        StepProfiler(engine).decode(num_seqs, context, 10)


def test_the_command_prints_a_table_or_one_document(tiny_path, capsys):
    """Stages beside what the machine can do; --json is that and nothing else."""
    words = ["profile", str(tiny_path), "--decode", "2", "--context", "20", "--steps", "2", "--prefill", "8"]
    assert main([*words, "--repeats", "1"]) == 0
    table = capsys.readouterr().out
    assert "down matrix" in table
    assert "read rate" in table
    assert main([*words, "--repeats", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["num_tokens"] for one in document["profiles"]] == [2, 8]
    assert document["yardsticks"]["read_bytes"] > 0.0
