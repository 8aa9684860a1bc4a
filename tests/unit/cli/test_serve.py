"""headway serve: flags to settings, the summary, and a real process from start to SIGTERM."""

import inspect
import signal
import socket
import subprocess
import sys
from dataclasses import MISSING, fields

import pytest

from headway.cli.generate import generate
from headway.cli.main import main
from headway.cli.serve import serve
from headway.cli.summary import rows
from headway.engine import EngineConfig, build_engine
from headway.sched import all_params
from headway.server import ServerConfig

ELSEWHERE = {"policy_settings", "api_keys", "admin_keys", "served_model_names"}  # filled from flags that repeat
NOT_FLAGS = {"max_body_bytes", "saturation", "stall_timeout_s", "log_interval_s"}


@pytest.mark.parametrize("command", [serve, generate])
@pytest.mark.parametrize("config", [EngineConfig, ServerConfig])
def test_flags_have_the_defaults_of_the_settings(command, config):
    """What --help says is what a caller from Python gets."""
    defaults = {field.name: field.default for field in fields(config) if field.default is not MISSING}
    flags = inspect.signature(command).parameters
    shared = (defaults.keys() & flags.keys()) - {"allowed_origins"}
    assert {name: flags[name].default for name in shared} == {name: defaults[name] for name in shared}


def test_every_setting_has_a_flag():
    """`serve` can set all that an engine and a server can be told, but for a few limits that nobody needs to turn."""
    flags = inspect.signature(serve).parameters.keys()
    names = {field.name for config in (EngineConfig, ServerConfig) for field in fields(config)}
    assert names - flags == ELSEWHERE | NOT_FLAGS


def test_summary(tiny_gguf):
    """The facts are those of the engine; a lowered context says why and how to raise it."""
    config = EngineConfig(model=str(tiny_gguf), num_blocks=8, max_num_seqs=4, policy_settings={"fair": "true"})
    engine = build_engine(config)
    facts = dict(rows(engine, ("my-model",), "http://127.0.0.1:1"))
    assert facts["model"].startswith("my-model (2 layers")
    assert facts["policy"] == "headway, fair=true"
    assert facts["limits"].startswith("4 sequences")
    assert facts["context"].startswith("128 tokens (the model allows 512")
    assert facts["KV cache"].startswith("8 blocks of 16, 128 tokens")
    assert "http://127.0.0.1:1/v1" in facts["serving"]
    engine.core.executor.close()


def test_a_taken_port_is_known_before_the_model_is_loaded(headway):
    """Status 2 for the port, although the model does not exist either."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, out, err = headway("serve", "no-such-model.gguf", "--port", taken.getsockname()[1])
    assert (status, out) == (2, "")
    assert "Address already in use; choose another" in err


def test_several_keys_come_from_several_flags_or_words(monkeypatch):
    """The variable is cut at spaces, as the help says; flags go before it."""
    found = []
    monkeypatch.setattr("headway.cli.serve._run", lambda engine, server, *_: found.append(server.api_keys))
    assert main(["serve", "--api-key", "old", "--api-key", "new"]) == 0
    monkeypatch.setenv("HEADWAY_API_KEY", "old new")
    assert main(["serve"]) == 0
    assert main(["serve", "--api-key", "mine"]) == 0
    assert found == [("old", "new"), ("old", "new"), ("mine",)]


@pytest.mark.parametrize("name", ["HEADWAY_API_KEY", "HEADWAY_ADMIN_API_KEY"])
@pytest.mark.parametrize("from_file", [False, True])
def test_a_variable_of_spaces_alone_opens_no_server(headway, monkeypatch, tmp_path, name, from_file):
    """It holds no key, but somebody meant to close the server; nor may it take away the keys of a file."""
    monkeypatch.setattr("headway.cli.serve._run", lambda *_: pytest.fail("the server was started"))
    monkeypatch.setenv(name, "  \n")
    path = tmp_path / "keys.toml"
    path.write_text('api-key = ["mine"]\nadmin-api-key = ["other"]\n')
    status, _, err = headway("serve", *(("--config", path) if from_file else ()))
    assert status == 2
    assert f"{name} is white space alone, which is no key; set it to a key, or unset it to need none\n" in err


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch, tmp_path):
    """As compose files write a variable that nobody gave: the file's keys count, else none."""
    found = []
    monkeypatch.setattr("headway.cli.serve._run", lambda engine, server, *_: found.append(server.api_keys))
    monkeypatch.setenv("HEADWAY_API_KEY", "")
    path = tmp_path / "keys.toml"
    path.write_text('api-key = ["mine"]\n')
    assert main(["serve"]) == 0
    assert main(["serve", "--config", str(path)]) == 0
    assert found == [(), ("mine",)]


def test_digits_may_be_grouped_alike_in_flags_settings_and_files(monkeypatch, tmp_path):
    """As TOML has it: 1_000 is 1,000 wherever a server is set up."""
    found = []
    monkeypatch.setattr("headway.cli.serve._run", lambda engine, *_: found.append(engine))
    path = tmp_path / "careful.toml"
    path.write_text("max-num-batched-tokens = 3_000\n")
    assert main(["serve", "--config", str(path), "--max-num-seqs", "1_000", "--set", "short_prompt_tokens=1_024"]) == 0
    [config] = found
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (1000, 3000)
    assert all_params(config.policy, config.policy_settings, {})["short_prompt_tokens"] == 1024


@pytest.mark.parametrize("name", ["api-key", "admin-api-key"])
@pytest.mark.parametrize("keys", ["old,new", "old new", "old\n"])
def test_several_keys_in_one_are_refused(headway, name, keys):
    """Taken for one key they would let nobody in; the message does not repeat them."""
    status, _, err = headway("serve", "no-such-model.gguf", f"--{name}", keys)
    assert status == 2
    assert f"an --{name} has a space or a comma; several keys are several --{name}" in err
    assert "old" not in err


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://collector", "http://"])
def test_a_collector_that_cannot_be_one_is_refused(headway, endpoint):
    """A slip in the URL would lose every trace, and tell of it only later."""
    status, _, err = headway("serve", "no-such-model.gguf", "--otlp-traces-endpoint", endpoint)
    assert status == 2
    assert repr(endpoint) in err


@pytest.mark.server
@pytest.mark.parametrize("how", ["forked", pytest.param("started", marks=pytest.mark.slow)])
def test_from_start_to_sigterm(tiny_gguf, nursery, how, capsys):
    """A plain summary on stderr, nothing on stdout, answers to chat and complete, and status 0 after SIGTERM."""
    words = ["serve", str(tiny_gguf), "--port", "0", "--served-model-name", "m", "--num-blocks", "64"]
    if how == "forked":
        process = nursery.start("headway.cli.main:main", *words)
    else:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-m", "headway", *words], **pipes)
    try:
        summary = []
        while not summary or not summary[-1].startswith("serving:"):
            line = process.stderr.readline()
            assert line, f"the server ended early: {summary}"
            summary.append(line)
        assert [line.partition(":")[0] for line in summary][:3] == ["model", "weights", "executor"]
        url = summary[-1].split()[1]
        assert main(["chat", "hi", "--url", url, "--max-tokens", "3"]) == 0
        assert main(["complete", "hi", "--url", url, "--max-tokens", "3"]) == 0
        assert capsys.readouterr().err == ""
        assert main(["complete", "hi", "--url", url, "--model", "other"]) == 1
        assert "'other'" in capsys.readouterr().err
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_two_recordings_need_two_files(headway, tmp_path):
    """Requests and decisions in one file would be neither: refused before a model is looked for."""
    path = tmp_path / "log"
    status, _, err = headway("serve", "no-such-model", "--record", path, "--record-steps", path)
    assert (status, path.exists()) == (2, False)
    assert "give each a file of its own" in err


def test_decisions_that_cannot_be_written_are_told_before_a_model_is_loaded(headway, tmp_path):
    """A wrong path is found out at once, as that of `--record` is, and not after a model was read."""
    path = tmp_path / "nowhere" / "steps.jsonl"
    status, _, err = headway("serve", "no-such-model", "--port", "0", "--record-steps", path)
    assert status == 2
    assert f"cannot record to {path}" in err
