"""The live page: what its feed says, who may read it, and how it behaves in a browser."""

import asyncio
import json
import re
import socket
import threading
from importlib import resources

import httpx
import pytest

from headway.engine import AsyncLLM
from headway.server import ServerConfig
from tests.conftest import skip_or_fail
from tests.support.browser import Browser, find_browser
from tests.support.engines import Gate, Paced, simulated_engine
from tests.support.live_server import LiveServer
from tests.support.tenants import bearer, write_tenants

BODY = {"prompt": [5, 6, 7, 8, 9, 10], "max_tokens": 24, "ignore_eos": True, "temperature": 0}


def paced_llm(step_s=0.01):
    return AsyncLLM(engine=simulated_engine(wrap=lambda inner: Paced(inner, step_s), num_blocks=256))


async def watched(client, gate, is_enough, **options):
    """Pictures of the feed up to one that is enough. Before each further one the engine makes a step, and no other."""
    found = []
    async with client.stream("GET", "/ui/feed", **options) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if is_enough(found[-1]):
                    break
                gate.let_through()
    return found


def decoding(picture):
    """How many requests have their first token behind them."""
    return sum(card["state"] == "decode" for card in picture["requests"])


def test_the_page_names_no_other_place():
    """Nothing is loaded from anywhere: no address, no import, no file."""
    page = resources.files("headway.server").joinpath("ui.html").read_text(encoding="utf-8")
    assert not re.findall(
        r"https?:|//[a-z]|@import|url\(|<script [^>]*src|<link(?! rel=\"icon\" href=\"data:,\")", page
    )


async def test_the_page_is_everybodys_and_its_feed_asks_for_a_key(engine, serve, tmp_path):
    """The page shows nothing by itself; the feed follows the rule of /metrics."""
    path = write_tenants(tmp_path / "tenants.toml", {"small": "", "boss": "admin = true"})
    client = serve(engine, tenants=path)
    page = await client.get("/ui")
    assert page.status_code == 200
    assert "'none'" in page.headers["content-security-policy"]
    assert (await client.get("/ui/feed")).status_code == 401
    assert (await client.get("/ui/feed", headers=bearer("small"))).status_code == 403


@pytest.fixture
def live_llm(monkeypatch):
    """Start a server over a paced engine at a port, or over a gated one; its feed tells of itself more often."""
    monkeypatch.setattr("headway.server.feed.PERIOD_S", 0.1)
    servers = []

    def start(port=0, **settings):
        server = LiveServer(paced_llm(), ServerConfig(**settings))
        if port:
            server.sock.close()
            server.sock = socket.create_server(("127.0.0.1", port))
            server.port, server.url = port, f"http://127.0.0.1:{port}"
        server.__enter__()
        servers.append(server)
        return server

    def gated(**settings):
        gates = []
        engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0], num_blocks=256)
        server = LiveServer(AsyncLLM(engine=engine), ServerConfig(**settings))
        server.__enter__()
        servers.append(server)
        return server, gates[0]

    def stop(server):
        servers.remove(server)
        server.__exit__()

    start.stop, start.gated = stop, gated
    yield start
    while servers:
        stop(servers[-1])


@pytest.mark.server
async def test_the_feed_tells_steps_blocks_queue_and_requests(live_llm):
    """Every step once, in order; requests with their time line; blocks that add up."""
    server, gate = live_llm.gated()
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        asks = [asyncio.create_task(client.post("/v1/completions", json=BODY | {"max_tokens": 100})) for _ in range(3)]
        found = await watched(client, gate, lambda picture: decoding(picture) == 3 and picture["steps"][-1]["step"] > 3)
        gate.open_for_good()
        for answer in await asyncio.gather(*asks):
            assert answer.status_code == 200
    numbers = [step["step"] for picture in found for step in picture["steps"]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 3
    last = found[-1]
    assert last["kv"]["used"] + last["kv"]["cached"] <= last["kv"]["num_blocks"] == 256
    assert last["latency"]["ttft"]["n"] == 3
    assert [card["state"] for card in last["requests"]] == ["decode"] * 3
    assert [part[0] for part in last["requests"][0]["time_line"]] == ["waiting", "prefill", "decode"]
    assert sum(num for name, num in last["ledger"].items() if name != "prefix_saved") >= 0


@pytest.mark.server
async def test_a_tenant_sees_its_own_requests_only(live_llm, tmp_path):
    """Where any key opens the feed, others' requests have neither ids nor names in it."""
    path = write_tenants(tmp_path / "tenants.toml", {"small": "", "big": "", "boss": "admin = true"})
    server, gate = live_llm.gated(tenants=path, metrics_access="key")
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        asks = [
            asyncio.create_task(client.post("/v1/completions", json=BODY | {"max_tokens": 100}, headers=bearer(name)))
            for name in ("small", "big")
        ]
        *_, everything = await watched(client, gate, lambda picture: decoding(picture) == 2, headers=bearer("boss"))
        [own] = await watched(client, gate, lambda picture: True, headers=bearer("small"))
        gate.open_for_good()
        await asyncio.gather(*asks)
    assert {card["tenant"] for card in everything["requests"]} == {"small", "big"}
    assert {card["tenant"] for card in own["requests"]} == {"small"}
    assert "big" not in json.dumps(own)


class Load:
    """Requests without pause from a thread, whether the server is up or not."""

    def __init__(self, url):
        self._url, self._done = url, threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(4)]

    def _run(self):
        with httpx.Client(base_url=self._url, timeout=30) as client:
            while not self._done.is_set():
                try:
                    client.post("/v1/completions", json=BODY | {"max_tokens": 100})
                except httpx.HTTPError:
                    self._done.wait(0.1)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def browser_of():
    """Open pages; closed at the end."""
    if find_browser() is None:
        skip_or_fail("no Chromium on this machine (Debian: apt install chromium)")
    opened = []

    def make(url, **options):
        opened.append(Browser(url, **options))
        return opened[-1]

    yield make
    for browser in opened:
        browser.close()


def check_colours(page, scheme):
    """Text and ground are far apart, and the ground is as dark or light as was asked for."""
    ground, ink = (
        [int(part) for part in re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{name}"))][:3]
        for name in ("backgroundColor", "color")
    )
    assert (sum(ground) > sum(ink)) == (scheme == "light")
    assert abs(sum(ground) - sum(ink)) > 450


@pytest.mark.server
@pytest.mark.timeout(240)
def test_in_a_browser(live_llm, browser_of):
    """Loads without complaint in both colour schemes, updates under load, works by keyboard, survives a restart."""
    server = live_llm()
    page = browser_of(f"{server.url}/ui")
    for scheme in ("dark", "light"):
        page.prefer(scheme)
        check_colours(page, scheme)
    with Load(server.url):
        page.until("document.querySelectorAll('#requests tr').length > 0")
        first = page.until("headway.picture.steps.length && headway.picture.steps.at(-1).step")
        page.until(f"headway.picture.steps.length && headway.picture.steps.at(-1).step > {first} + 20")
        page.until("document.querySelector('#latency td.n').textContent !== '–'")
        page.until("document.querySelector('#rate').textContent.includes('tokens')")

        page.press("r")
        page.until("document.activeElement.closest('#requests') !== null")
        page.press("ArrowDown")
        page.press("Enter")
        page.until("document.querySelector('#explain').textContent.includes('time_line')")
        page.press("s")
        page.press("ArrowLeft")
        page.until("/^step \\d+: \\d+ tokens/.test(document.querySelector('#step').textContent)")
        page.press("c")
        assert page.evaluate("document.querySelector('#colour').value") == "tenant"
        page.press(" ")
        assert page.evaluate("headway.paused")
        page.press(" ")
        assert not page.evaluate("headway.paused")

        epoch, port = page.evaluate("headway.epoch"), server.port
        live_llm.stop(server)
        page.until("document.querySelector('#state').className === 'bad'")
        live_llm(port=port)
        page.until(f"headway.epoch !== {json.dumps(epoch)} && document.querySelector('#state').className === 'good'")
        page.until("document.querySelectorAll('#requests tr').length > 0")
    own = f"http://127.0.0.1:{port}/"
    assert [url for url in page.requested() if not url.startswith((own, "about:", "data:"))] == []
    assert page.complaints() == []


@pytest.mark.server
@pytest.mark.slow  # a browser of its own for each
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_starts_in_the_colour_scheme(live_llm, browser_of, scheme):
    """As the page above follows it."""
    server = live_llm()
    page = browser_of(f"{server.url}/ui", scheme=scheme)
    page.until("document.querySelector('#state').textContent === 'serving'")
    check_colours(page, scheme)


async def test_only_so_many_may_read_at_once(engine, serve):
    """The seventeenth reader is told to come back."""
    from headway.obs import Watch
    from headway.server.access import Caller
    from headway.server.accounts import Accounts
    from headway.server.feed import MOST_READERS, Feed
    from headway.server.served import Served
    from headway.tenancy import Tenant

    engine.is_alive = True
    engine.control = type("Control", (), {"admission": None})()
    feed = Feed(Served(engine, ServerConfig(), Accounts.open(ServerConfig(), "m")), Watch(engine.stats, 16))
    feed.picture = lambda caller, after_step=-1: {"steps": []}
    readers = [feed.events(Caller(Tenant(name=""))) for _ in range(MOST_READERS)]
    for reader in readers:
        assert await anext(reader) == b'data: {"steps":[]}\n\n'
    with pytest.raises(Exception, match="as many as may be"):
        feed.require_room()
    for reader in readers:
        await reader.aclose()
    feed.require_room()
