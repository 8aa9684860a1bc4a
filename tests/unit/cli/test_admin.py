"""headway admin and explain: command lines to requests, answers to words."""

import json
import signal

import httpx
import pytest
from typer.main import get_command

from headway.cli import client as client_module
from headway.cli.admin import parse_patch
from headway.cli.explain import lines_of
from headway.cli.guarding import ADMISSION, guarding_of, parse_slo
from headway.cli.main import main, make_app
from headway.engine import AdmissionLimits
from headway.errors import BadSetting

STORY = {
    "id": "cmpl-mine-0123456789ab",
    "state": "finished",
    "tenant": "acme",
    "tier": "default",
    "priority": 0,
    "num_prompt": 9,
    "num_cached": 4,
    "num_output": 20,
    "finish_reason": "length",
    "refusal": None,
    "time_line": [{"at_s": 0.0, "what": "arrived"}, {"at_s": 0.4, "what": "admitted", "cached_tokens": 4}],
    "waited_s": {"sequences": 0.3, "step_end": 0.1},
    "predictions": {"ttft_s": {"predicted": 0.5, "actual": 0.45}},
    "last_steps": [],
}


@pytest.fixture
def server(monkeypatch):
    """A server that answers `answer` and keeps what it was asked."""
    asked = []

    def respond(request):
        asked.append((request.method, request.url.path, json.loads(request.content or b"{}"), dict(request.headers)))
        return respond.answer

    respond.answer = httpx.Response(200, json={"max_num_seqs": 64})
    real = client_module.Client
    transport = httpx.MockTransport(respond)
    monkeypatch.setattr(client_module, "Client", lambda url, key=None: real(url, key, transport=transport))
    respond.asked = asked
    return respond


def test_the_key_comes_from_the_variable_that_the_server_reads(server, monkeypatch):
    """One name for both: what `serve` takes as the admin's key, the commands send."""
    monkeypatch.setenv("HEADWAY_ADMIN_API_KEY", "hw-admin")
    assert main(["admin", "show"]) == 0
    assert server.asked[0][3]["authorization"] == "Bearer hw-admin"
    variables = {option.envvar for option in get_command(make_app()).commands["serve"].params}
    assert "HEADWAY_ADMIN_API_KEY" in variables


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_may_not_manage_is_told_which_one_may(server, capsys, status):
    """Not the key of `chat`, which the server has just refused."""
    server.answer = httpx.Response(status, json={"error": {"message": "no"}})
    assert main(["admin", "show"]) == 1
    assert "an admin's key with --api-key or HEADWAY_ADMIN_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        (["show"], ("GET", "/admin/config", {})),
        (["set", "max_num_seqs=64"], ("PATCH", "/admin/config", {"max_num_seqs": 64})),
        (["drain"], ("POST", "/admin/drain", {})),
        (["drain", "--tenant", "acme"], ("POST", "/admin/drain", {"tenant": "acme"})),
        (["resume", "--tenant", "acme"], ("POST", "/admin/resume", {"tenant": "acme"})),
        (["abort", "mine/1"], ("POST", "/admin/requests/mine/1/abort", {})),
        (["reset-cache"], ("POST", "/admin/cache/reset", {})),
    ],
)
def test_each_command_is_one_request(server, capsys, line, request_):
    """With the key in its header; --json prints the answer."""
    assert main(["admin", *line, "--api-key", "secret", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"max_num_seqs": 64}
    ((*asked, headers),) = server.asked
    assert tuple(asked) == request_
    assert headers["authorization"] == "Bearer secret"


def test_a_refusal_is_one_line_and_status_1(server, capsys):
    """The server's words."""
    server.answer = httpx.Response(400, json={"error": {"message": "max_num_seqs is 0; too few"}})
    assert main(["admin", "set", "max_num_seqs=0"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_patches_hold_json_words_and_parts():
    """Numbers, flags and lists are JSON, the rest are words; parts go to the policy and the SLO table."""
    assert parse_patch(
        ["max_num_seqs=64", "policy=headway", "policy.fair=false", "slo.ttft_p95_ms=1500", 'guardrail_actions=["long"]']
    ) == {
        "max_num_seqs": 64,
        "policy": "headway",
        "policy_settings": {"fair": False},
        "slo": {"ttft_p95_ms": 1500},
        "guardrail_actions": ["long"],
    }
    for wrong in ("max_num_seqs", "=3", "no.such=3"):
        with pytest.raises(BadSetting):
            parse_patch([wrong])


def test_a_story_in_words(server, capsys):
    """The time line, the waiting by reason, and how the prediction turned out."""
    lines = "\n".join(lines_of(STORY))
    for part in (
        "finished (length)",
        "as many sequences ran as may",
        "predicted ttft_s 0.500, actual 0.450",
        "0.400 s",
    ):
        assert part in lines
    server.answer = httpx.Response(200, json={"requests": [STORY]})
    assert main(["explain", "mine"]) == 0
    assert capsys.readouterr().out.strip() == lines
    assert server.asked[0][1] == "/admin/requests/mine"


def test_flags_about_admission_have_the_defaults_of_the_settings():
    """What --help says is what a caller from Python gets."""
    given = {name: default for name, (_, default, _) in ADMISSION.items()}
    words = {"slo": ["itl_p99_ms=120"], "guardrail_actions": "long, slow", "guardrail_long_tokens": 99}
    guarding = guarding_of(given | words)
    assert guarding.limits == AdmissionLimits()
    assert (guarding.guards.slo, guarding.guards.actions, guarding.guards.long_tokens) == (
        {"itl_p99_ms": 120.0},
        ("long", "slow"),
        99,
    )


@pytest.mark.parametrize("text", ["ttft_p95_ms", "ttft_p95_ms=fast", "=", ""])
def test_a_promise_that_is_none(text):
    """Named, with an example of one."""
    with pytest.raises(BadSetting, match="ttft_p95_ms=1500"):
        parse_slo([text])


@pytest.mark.server
def test_the_knobs_of_a_real_server(tiny_gguf, nursery, capsys):
    """Settings, an answer, its explanation, draining and resuming, over a real socket; the log says who did it."""
    flags = ["--port", "0", "--num-blocks", "500", "--max-queued-tokens", "5000", "--slo", "ttft_p95_ms=60000"]
    process = nursery.start("headway.cli.main:main", "serve", tiny_gguf, *flags)
    try:
        line = process.stderr.readline()
        while not line.startswith("serving:"):
            assert line, "the server ended early"
            line = process.stderr.readline()
        url = line.split()[1]
        assert main(["admin", "show", "--url", url, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["max_queued_tokens"], shown["slo"]) == (5000, {"ttft_p95_ms": 60000.0})
        for policy in ("vllm", "headway"):
            assert main(["admin", "set", f"policy={policy}", "max_num_seqs=5", "--url", url]) == 0
        body = {"prompt": "hi", "max_tokens": 3}
        api = url.removesuffix("/v1") + "/v1/completions"
        answer = httpx.post(api, json=body, headers={"x-request-id": "mine"})
        assert answer.status_code == 200
        assert main(["explain", answer.json()["id"], "--url", url]) == 0
        assert "first token" in capsys.readouterr().out
        assert main(["admin", "drain", "--url", url]) == 0
        assert httpx.post(api, json=body).json()["error"]["code"] == "draining"
        assert main(["admin", "resume", "--url", url]) == 0
        assert httpx.post(api, json=body | {"deadline_ms": 0.001}).json()["error"]["code"] == "deadline"
        assert main(["admin", "abort", "nobody", "--url", url]) == 1
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "settings changed by the admin at 127.0.0.1: policy=headway, max_num_seqs=5" in log
    finally:
        process.kill()
        process.communicate()
