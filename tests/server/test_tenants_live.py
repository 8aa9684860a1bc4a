"""Tenants on a real engine and a real process: what a stand-in cannot show."""

import os
import random
import signal
import time
from datetime import date

import httpx
import pytest

from headway.engine import AsyncLLM
from headway.server import ServerConfig, usage_path
from headway.server.serve import hold_reloads
from headway.tenancy import open_store
from tests.support.engines import simulated_engine
from tests.support.live_server import live
from tests.support.tenants import bearer, write_tenants

pytestmark = pytest.mark.server

PROMPT = list(range(5, 45))


def cached(url, name, **body):
    """Cached prompt tokens of one answer."""
    body = {"prompt": PROMPT, "max_tokens": 2, **body}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=bearer(name), timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("kind", ["hashed", "radix"])
def test_no_tenant_finds_anothers_prefix(tmp_path, kind):
    """PUBLIC_ISSUES 5.4: each finds its own again; another's never, not with its salt either; groups share."""
    tenants = {"a": "", "b": "", "c": 'cache_group = "g"', "d": 'cache_group = "g"'}
    path = write_tenants(tmp_path / "tenants.toml", tenants)
    with live(AsyncLLM(engine=simulated_engine(prefix_cache=kind, num_blocks=300)), tenants=path) as server:
        assert cached(server.url, "a") == 0
        assert cached(server.url, "a") > 0
        assert cached(server.url, "b") == 0
        assert cached(server.url, "b") > 0
        assert cached(server.url, "a", cache_salt="s") == 0
        assert cached(server.url, "a", cache_salt="s") > 0
        assert cached(server.url, "b", cache_salt="s") == 0
        assert cached(server.url, "c") == 0
        assert cached(server.url, "d") > 0


@pytest.mark.parametrize("num_streams", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_two_hundred_endings_leave_no_count(tmp_path, num_streams):
    """PUBLIC_ISSUES 10.7: whatever happens to 200 requests (or 50), afterwards nothing is counted as running."""
    path = write_tenants(tmp_path / "tenants.toml", {"a": "max_concurrent = 4", "root": "admin = true"})
    chance = random.Random(7)
    bodies = [
        {"prompt": [5, 6], "max_tokens": 2},
        {"prompt": [5, 6], "max_tokens": 2, "n": 3},
        {"prompt": [[5], [6]], "max_tokens": 1},
        {"prompt": [99999]},
        {"prompt": "x", "n": -1},
        {"prompt": "x", "model": "other"},
        {"prompt": [5] * 600},
    ]
    with live(AsyncLLM(engine=simulated_engine(policy="headway")), tenants=path) as server, httpx.Client() as client:
        url = f"{server.url}/v1/completions"
        for _ in range(9 * num_streams):
            client.post(url, json=chance.choice(bodies), headers=bearer("a"))
        for _ in range(num_streams):
            body = {"prompt": [5, 6], "max_tokens": 300, "stream": True, "ignore_eos": True}
            with client.stream("POST", url, json=body, headers=bearer("a")) as answer:
                next(answer.iter_lines(), None)
        deadline = time.monotonic() + 10
        while True:
            listed = client.get(f"{server.url}/admin/tenants", headers=bearer("root")).json()["tenants"]
            if all(card["num_running"] == 0 for card in listed):
                break
            assert time.monotonic() < deadline, listed
        assert client.post(url, json={"prompt": [[5]] * 4, "max_tokens": 1}, headers=bearer("a")).status_code == 200


def test_a_signal_reads_the_file_again_and_usage_is_kept(tmp_path, nursery):
    """SIGHUP takes over a new key without a restart; what was used is in the store when the server has ended."""
    path = write_tenants(tmp_path / "tenants.toml", {"a": ""})
    running = nursery.start("tests.support.serve_fake:main", "0", "5", FAKE_TENANTS=str(path))
    try:
        url = running.stdout.readline().strip() + "/v1/completions"
        body = {"prompt": "Hi", "max_tokens": 3}
        assert httpx.post(url, json=body, headers=bearer("a")).status_code == 200
        assert httpx.post(url, json=body, headers=bearer("b")).status_code == 401
        write_tenants(path, {"a": "", "b": ""})
        running.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while httpx.post(url, json=body, headers=bearer("b")).status_code != 200:
            assert time.monotonic() < deadline, "the signal has no effect"
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=20)
        assert (running.returncode, errors) == (0, "")
    finally:
        running.kill()
        running.communicate()
    rows = open_store(f"sqlite:///{usage_path(path)}").read(date(2000, 1, 1))
    used = {key.tenant: usage for key, usage in rows}
    assert (used["a"].requests, used["a"].output_tokens) == (1, 3)
    assert used["b"].requests == 1


def test_a_reload_that_comes_before_the_model_ends_nothing(tmp_path):
    """SIGHUP while the model is loaded: the file is read later anyway. Without tenants it means what it always does."""
    heard = []
    before = signal.signal(signal.SIGHUP, lambda number, _: heard.append(number))
    try:
        hold_reloads(ServerConfig())
        os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]
        hold_reloads(ServerConfig(tenants=tmp_path / "tenants.toml"))
        os.kill(os.getpid(), signal.SIGHUP)
        assert heard == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)
