"""`headway bench isolation` and `overload`, whole: on a server of their own, and in short on one in this process."""

import contextlib
import json
import os

import pytest

from headway.cli.bench_isolation import isolation
from headway.cli.bench_overload import overload
from headway.cli.main import main
from headway.cli.own_server import OwnServer
from headway.engine import AsyncLLM
from tests.support.engines import Paced, simulated_engine
from tests.support.live_server import live
from tests.support.tenants import key_of, write_tenants
from tests.support.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.server


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny.gguf"
    write_tiny_gguf(path)
    return str(path)


@pytest.fixture
def near_server(monkeypatch, tmp_path):
    """The experiment's own server is one of this process, whose steps take four milliseconds."""
    started = []

    @contextlib.contextmanager
    def own_server(words, tenants=()):
        policy = words[words.index("--policy") + 1]
        engine = simulated_engine(wrap=lambda inner: Paced(inner, 0.004), policy=policy, num_blocks=200, max_num_seqs=4)
        path = write_tenants(tmp_path / "tenants.toml", dict.fromkeys(tenants, "")) if tenants else None
        llm = AsyncLLM(engine=engine)
        with live(llm, tenants=path) as server:
            started.append((policy, llm.control))
            yield OwnServer(server.url, {name: key_of(name) for name in tenants}, os.getpid())

    for module in ("own_server", "isolation_runs"):
        monkeypatch.setattr(f"headway.cli.{module}.own_server", own_server)
    return started


def check_isolation(found):
    """Solo, both policies, and the ratios."""
    assert {"solo", "headway", "vllm", "ratio_headway", "ratio_vllm"} <= found.keys()
    assert found["ratio_vllm"] == pytest.approx(found["vllm"] / found["solo"])
    assert found["runs"]["solo"]["num_requests"] > 0


def check_overload(found):
    """Capacity, goodput at it and beyond, and how true Retry-After was."""
    assert found["capacity"] > 0
    assert found["goodput_at_capacity"] > 0
    assert found["num_refused"] >= 0


def test_isolation_prints_its_figures(model, near_server, capsys):
    """Three runs on three servers, each under its policy, and what comes out of them."""
    assert isolation(model=model, duration_s=0.3, rate=20.0, factor=1.0, big_prompt=60, as_json=True) == 0
    check_isolation(json.loads(capsys.readouterr().out))
    assert [policy for policy, _ in near_server] == ["headway", "headway", "vllm"]


def test_overload_prints_its_figures(model, near_server, monkeypatch, capsys):
    """Three runs on one server that admits by a part of the promised time."""
    from headway.bench import overload as figures

    # Where a pause took most of the first run, nobody would come in the 0.4 s of the second.
    sustained = figures.sustained
    monkeypatch.setattr(figures, "sustained", lambda *run: (found := sustained(*run)) and max(found, 40.0))
    words = {"duration_s": 0.4, "prompt_len": 40, "output_len": 8, "ttft_ms": 1000.0, "margin": 0.5}
    assert overload(model=model, as_json=True, **words) == 0
    check_overload(json.loads(capsys.readouterr().out))
    [(policy, control)] = near_server
    assert (policy, control.admission.limits.ttft_limit_ms) == ("headway", 500.0)


def test_a_server_so_slow_that_nobody_would_come_is_told_as_it_is(model, near_server, monkeypatch, capsys):
    """Arrivals at the rate that it sustains may be none within the time: nobody is served, and there is no probe."""
    monkeypatch.setattr("headway.bench.overload.sustained", lambda *_: 0.0)
    words = {"duration_s": 0.1, "prompt_len": 40, "output_len": 8, "ttft_ms": 1000.0}
    assert overload(model=model, as_json=True, **words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["goodput_at_capacity"], found["kept"], found["num_probes"]) == (0.0, None, 0)


@pytest.mark.slow  # three servers of their own, and two seconds of load on each
@pytest.mark.timeout(240)
def test_isolation_on_servers_of_its_own(model, capsys):
    """The same through the command line, with processes."""
    words = ["--model", model, "--executor", "reference", "--duration", "2", "--rate", "4", "--big-prompt", "60"]
    assert main(["bench", "isolation", "--json", *words, "--factor", "1"]) == 0
    check_isolation(json.loads(capsys.readouterr().out))


@pytest.mark.slow  # a server of its own, and three runs of two seconds
@pytest.mark.timeout(240)
def test_overload_on_a_server_of_its_own(model, capsys):
    """The same through the command line, with a process."""
    words = ["--model", model, "--executor", "reference", "--duration", "2", "--prompt-len", "40", "--output-len", "8"]
    assert main(["bench", "overload", "--json", *words]) == 0
    check_overload(json.loads(capsys.readouterr().out))


def test_mistakes_are_told_before_anything_is_loaded(capsys):
    """One line, status 2."""
    assert main(["bench", "isolation", "--rate", "0"]) == 2
    assert "rate is 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seed", "duration"), [("0", "25"), *(pytest.param(seed, "90", marks=pytest.mark.slow) for seed in "0123")]
)
def test_a_small_tenant_hardly_feels_a_big_one(capsys, seed, duration):
    """In virtual time, beyond twice the capacity: at most twice as long as alone under `headway`, and far more else."""
    assert main(["bench", "isolation", "--hardware", "CPU", "--duration", duration, "--seed", seed, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["is_virtual"]
    assert found["offered_over_served"] >= 1.5
    assert found["ratio_headway"] <= 2.0
    assert found["ratio_vllm"] > 10.0
