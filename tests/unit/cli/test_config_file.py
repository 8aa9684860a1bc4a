"""`--config FILE`: a file's values are defaults, flags on the line win, mistakes are one line."""

from pathlib import Path

import pytest

from headway.cli import serve
from headway.cli.main import main


@pytest.fixture
def configs(monkeypatch):
    """What `serve` would start, instead of starting it."""
    seen = []
    monkeypatch.setattr(serve, "_run", lambda *given: seen.append(given[:3]))
    return seen


def test_values_and_policy_table(tmp_path, configs):
    """Dashes or underscores, lists, and a policy with its parameters."""
    path = tmp_path / "headway.toml"
    path.write_text(
        'max-num-seqs = 7\nkv_cache_memory = "64MiB"\napi_key = ["a", "b"]\n'
        '[policy]\nname = "headway"\nitl_target_ms = 50\nfair = false\n'
    )
    assert main(["serve", "--config", str(path), "--max-num-seqs", "9"]) == 0
    ((engine, server, _),) = configs
    assert (engine.max_num_seqs, engine.kv_cache_memory, engine.policy) == (9, 64 << 20, "headway")
    assert engine.policy_settings == {"itl_target_ms": "50", "fair": "false"}
    assert server.api_keys == ("a", "b")


@pytest.mark.parametrize(
    ("line", "policy", "settings"),
    [
        (["--set", "age-s=3"], "headway", {"itl_target_ms": "50", "fair": "false", "age_s": "3"}),
        (["--set", "itl_target_ms=80"], "headway", {"itl_target_ms": "80", "fair": "false"}),
        (["--policy", "headway"], "headway", {"itl_target_ms": "50", "fair": "false"}),
        (["--policy", "vllm", "--set", "order=priority"], "vllm", {"order": "priority"}),
    ],
)
def test_the_line_wins_key_by_key(tmp_path, configs, capsys, line, policy, settings):
    """What it does not name is the file's; a table for another policy is left out, and that is told."""
    path = tmp_path / "headway.toml"
    path.write_text('[policy]\nname = "headway"\nitl-target-ms = 50\nfair = false\n')
    for words in ([*line, "--config", str(path)], ["--config", str(path), *line]):
        assert main(["serve", *words]) == 0
        engine = configs.pop()[0]
        assert (engine.policy, engine.policy_settings) == (policy, settings)
        assert ("its [policy] table is for headway" in capsys.readouterr().err) == (policy != "headway")


def test_the_careful_start_is_one_file(configs):
    """`examples/careful.toml` leaves a quarter of the KV cache to answers that grow, and bounds prompts and queue."""
    path = Path(__file__).parents[3] / "examples" / "careful.toml"
    assert main(["serve", "--config", str(path)]) == 0
    ((engine, _, guarding),) = configs
    assert engine.kv_cache_utilization_limit == 0.75
    assert 0 < engine.max_num_prefill_tokens < engine.max_num_batched_tokens
    assert guarding.limits.max_queued_requests == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "unknown key 'prot' (did you mean 'port'?)"),
        ("[polcy]\nfair = false", "unknown key 'polcy' (did you mean 'policy'?)"),
        ("port = ", "is not TOML"),
        ('port = "x"', "headway.toml: port: "),
        ("max-num-seqs = [1]", "headway.toml: max-num-seqs: "),
        ('kv_cache_memory = "64Miles"', "headway.toml: kv_cache_memory: '64Miles' is no amount"),
        ("policy = 3", "policy must be"),
        ("block-size = 16\nblock_size = 32", "block-size and block_size are the same; remove one"),
        ("num-blocks = 16\nnum-gpu-blocks-override = 9", "num-blocks and num-gpu-blocks-override are the same"),
        ('scheduling-policy = "vllm"\n[policy]\nname = "orca"', "scheduling-policy and policy are the same"),
        ('[policy]\nname = "headway"\nage_s = 1\nage-s = 2', "age_s and age-s are the same; remove one"),
        ("[set]\nfair = false", "unknown key 'set'"),
        ("settings = ['fair=false']", "unknown key 'settings'"),
    ],
)
def test_mistakes_are_one_line(tmp_path, configs, capsys, text, message):
    """An unknown key, a broken file and a value of the wrong type end with status 2."""
    path = tmp_path / "headway.toml"
    path.write_text(text)
    assert main(["serve", "--config", str(path)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not configs


def test_the_line_is_blamed_for_its_own_values(tmp_path, configs, capsys):
    """A flag that is wrong on the line is named as a flag, whatever the file has."""
    path = tmp_path / "headway.toml"
    path.write_text('port = "x"')
    assert main(["serve", "--config", str(path), "--port", "y"]) == 2
    assert "Invalid value for '--port'" in capsys.readouterr().err


def test_missing_file(configs, capsys):
    """A file that is not there is named."""
    assert main(["serve", "--config", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
