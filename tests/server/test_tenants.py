"""Tenants over HTTP: who comes in, what they may do, and what they never see of each other."""

import asyncio

import pytest

from headway.core import Tier
from headway.errors import ExecutorFault, Overloaded
from tests.support.tenants import bearer, write_tenants

GOOD = {"prompt": "Hi", "max_tokens": 4}


@pytest.fixture
def open_house(tmp_path, serve):
    """Make a client of a server with tenants: names to the lines of their tables."""

    def make(engine, tenants, head="", **settings):
        path = write_tenants(tmp_path / "tenants.toml", tenants, head)
        return serve(engine, tenants=path, **settings)

    return make


async def complete(client, name, status=200, **body):
    answer = await client.post("/v1/completions", json=GOOD | body, headers=bearer(name) if name else {})
    assert answer.status_code == status, answer.text
    return answer


async def until(condition):
    """Let the server work until something is so."""
    while not condition():  # noqa: ASYNC110 - the fake engine has no event for every thing a test waits for
        await asyncio.sleep(0)


async def test_an_unknown_key_is_a_401_and_a_known_one_is_its_tenant(engine, open_house):
    """No key, a wrong one and a prefix of a right one are refused alike; a right one carries tenant and weight."""
    client = open_house(engine, {"acme": "weight = 3.0", "tiny": ""})
    shown = [None, "Bearer nonsense", bearer("acme")["authorization"][:-1], bearer("acme")["authorization"].upper()]
    for header in shown:
        headers = {} if header is None else {"authorization": header}
        answer = await client.post("/v1/completions", json=GOOD, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["x-request-id"]
    assert engine.submitted == []
    await complete(client, "acme")
    await complete(client, "tiny")
    assert [(request.tenant, request.weight) for request in engine.submitted] == [("acme", 3.0), ("tiny", 1.0)]


async def test_a_tenants_own_limit_is_a_429_with_the_wait_of_its_bucket(engine, open_house):
    """The wait is computed: 6 a minute and one at once mean 10 s. Others are not touched."""
    client = open_house(engine, {"acme": "requests_per_minute = 6\nrequest_burst = 1", "tiny": ""})
    await complete(client, "acme")
    refused = await complete(client, "acme", 429)
    assert refused.headers["retry-after"] == "10"
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_requests")
    assert "tiny" not in refused.text
    for _ in range(3):
        await complete(client, "tiny")


async def test_answers_say_what_is_left_of_the_callers_rates(engine, open_house):
    """Limit, rest and time until all is back, on an answer, a stream and a refusal; nothing without limits."""
    limits = "requests_per_minute = 6\nrequest_burst = 2\ntokens_per_minute = 60\ntoken_burst = 500"
    client = open_house(engine, {"acme": limits, "tiny": "max_concurrent = 9"})

    def told(answer, kind):
        return [answer.headers.get(f"x-ratelimit-{what}-{kind}") for what in ("limit", "remaining", "reset")]

    answers = [await complete(client, "acme", max_tokens=90), await complete(client, "acme", stream=True)]
    answers.append(await complete(client, "acme", 429))
    assert [told(answer, "requests")[:2] for answer in answers] == [["2", "1"], ["2", "0"], ["2", "0"]]
    assert told(answers[0], "requests")[2].startswith("9.") or told(answers[0], "requests")[2] == "10s"
    assert int(told(answers[0], "tokens")[1]) < 500 == int(told(answers[0], "tokens")[0])
    assert told(await complete(client, "tiny"), "requests") == [None] * 3


async def test_tokens_are_charged_for_prompt_and_output_and_the_rest_is_given_back(engine, open_house):
    """A bucket of 100 tokens: 2 + 90 are reserved while a request runs, 2 + 12 stay charged when it ended."""
    client = open_house(engine, {"acme": "tokens_per_minute = 1\ntoken_burst = 100"})
    engine.permits = 0
    first = asyncio.create_task(complete(client, "acme", max_tokens=90))
    await until(lambda: engine.submitted)
    assert (await complete(client, "acme", 429, max_tokens=50)).json()["error"]["code"] == "rate_limit_tokens"
    engine.allow(None)
    await first
    await complete(client, "acme", max_tokens=80)


async def test_concurrent_requests_are_counted_until_they_ended(engine, open_house):
    """Two at once; a third waits for the end of one. A call of three prompts can never run: 400, not 429."""
    client = open_house(engine, {"acme": "max_concurrent = 2"})
    engine.permits = 0
    running = [asyncio.create_task(complete(client, "acme")) for _ in range(2)]
    await until(lambda: len(engine.submitted) == 2)
    refused = await complete(client, "acme", 429)
    assert refused.json()["error"]["code"] == "rate_limit_concurrency"
    assert int(refused.headers["retry-after"]) >= 1
    engine.allow(None)
    await asyncio.gather(*running)
    await complete(client, "acme")
    assert (await complete(client, "acme", 400, prompt=["a", "b", "c"])).json()["error"]["param"] == "prompt"


async def test_nothing_is_left_charged_however_a_request_ends(engine, open_house):
    """PUBLIC_ISSUES 10.7: mistakes, refusals, engine faults, clients who leave: afterwards all of the limit is free."""
    client = open_house(engine, {"acme": "max_concurrent = 1\nrequests_per_minute = 1\nrequest_burst = 5"})
    for body, status in ((GOOD | {"prompt": [99999]}, 400), (GOOD | {"n": 0}, 400), (GOOD | {"model": "other"}, 404)):
        await complete(client, "acme", status, **body)
    engine.refusal = Overloaded("full")
    await complete(client, "acme", 503)
    engine.refusal, engine.faults = None, {0: ExecutorFault("broken")}
    await complete(client, "acme", 500)  # the fake ends it as one that its client left: charged
    engine.faults, engine.permits = {}, 0
    for _ in range(2):
        gone = asyncio.create_task(complete(client, "acme"))
        await until(lambda: engine.streams)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await until(lambda: not engine.streams)
    engine.allow(None)
    await complete(client, "acme")
    await complete(client, "acme")
    await complete(client, "acme", 429)


async def test_a_refusal_by_one_limit_gives_the_others_back(engine, open_house):
    """A class limit refuses: the tenant's own request bucket has lost nothing."""
    client = open_house(
        engine,
        {
            "acme": "requests_per_minute = 1\nrequest_burst = 2\n"
            "[tenants.acme.per_class.batch]\nrequests_per_minute = 1\nrequest_burst = 1\n"
        },
    )
    await complete(client, "acme", service_tier="flex")
    for _ in range(5):
        refused = await complete(client, "acme", 429, service_tier="flex")
        assert "class batch" in refused.json()["error"]["message"]
    await complete(client, "acme")
    await complete(client, "acme", 429)


async def test_lengths_and_models_are_bounded(engine, open_house):
    """Longest input and output, per tenant and model; without max_tokens the output is cut to the limit."""
    client = open_house(
        engine,
        {
            "acme": 'models = ["fake"]\nmax_input_tokens = 4\nmax_output_tokens = 8\n'
            "[tenants.acme.per_model.other]\nmax_output_tokens = 3\n"
        },
        served_model_names=("fake", "other"),
    )
    await complete(client, "acme", max_tokens=8)
    assert (await complete(client, "acme", 400, max_tokens=9)).json()["error"]["param"] == "max_tokens"
    assert (await complete(client, "acme", 400, prompt="12345")).json()["error"]["param"] == "prompt"
    forbidden = await complete(client, "acme", 403, model="other")
    assert (forbidden.json()["error"]["code"], forbidden.json()["error"]["param"]) == ("forbidden", "model")
    listed = (await client.get("/v1/models", headers=bearer("acme"))).json()["data"]
    assert [card["id"] for card in listed] == ["fake"]
    assert (await client.get("/v1/models/other", headers=bearer("acme"))).status_code == 404
    chat = {"messages": [{"role": "user", "content": ""}]}
    client = open_house(engine, {"acme": "max_output_tokens = 8"})
    assert (await client.post("/v1/chat/completions", json=chat, headers=bearer("acme"))).status_code == 200
    assert engine.submitted[-1].max_output == 8


async def test_salts_keep_tenants_apart_unless_they_share(engine, open_house):
    """PUBLIC_ISSUES 5.4: the salt comes from who is calling; naming another's client salt does not join it."""
    client = open_house(
        engine, {"a": "", "b": "", "c": 'cache_group = "a"', "d": 'cache_group = "a"', "e": 'cache_group = "tenant a"'}
    )
    for name in "abcde":
        await complete(client, name)
        await complete(client, name, cache_salt="mine")
    plain, own = [[request.cache_salt for request in engine.submitted[first::2]] for first in (0, 1)]
    await complete(client, "a")
    assert engine.submitted[-1].cache_salt == plain[0]
    assert plain[2] == plain[3]
    assert own[2] == own[3]
    assert len({*plain, *own}) == 8
    await complete(client, "b", cache_salt=plain[0])
    assert engine.submitted[-1].cache_salt not in plain


async def test_tiers_are_classes_and_priority_is_granted(engine, open_house):
    """`flex` is everybody's, `priority` must be granted; the answer says which tier served it."""
    client = open_house(engine, {"acme": "", "gold": "priority_tier = true", "night": 'class = "batch"'})
    answers = [
        await complete(client, "acme"),
        await complete(client, "acme", service_tier="auto"),
        await complete(client, "acme", service_tier="flex"),
        await complete(client, "gold", service_tier="priority"),
        await complete(client, "night", service_tier="default"),
    ]
    tiers = [Tier.DEFAULT, Tier.DEFAULT, Tier.FLEX, Tier.PRIORITY, Tier.FLEX]
    assert [request.tier for request in engine.submitted] == tiers
    assert [answer.json().get("service_tier") for answer in answers] == [None, "default", "flex", "priority", "flex"]
    assert (await complete(client, "acme", 403, service_tier="priority")).json()["error"]["param"] == "service_tier"
    assert (await complete(client, "acme", 400, service_tier="gold")).json()["error"]["param"] == "service_tier"
    engine.honours_tier = False
    assert (await complete(client, "acme", service_tier="flex")).json()["service_tier"] == "default"


async def test_figures_of_all_tenants_are_for_admins(engine, open_house):
    """/metrics shows what every tenant does: an admin key unless the operator opens it; probes stay open."""
    tenants = {"acme": "", "root": "admin = true"}
    client = open_house(engine, tenants)
    assert (await client.get("/metrics")).status_code == 401
    assert (await client.get("/metrics", headers=bearer("acme"))).status_code == 403
    assert (await client.get("/metrics", headers=bearer("root"))).status_code == 200
    assert (await client.get("/health")).status_code == 200
    client = open_house(engine, tenants, metrics_access="key")
    assert [(await client.get("/metrics", headers=h)).status_code for h in ({}, bearer("acme"))] == [401, 200]
    client = open_house(engine, tenants, metrics_access="open")
    assert (await client.get("/metrics")).status_code == 200


async def test_an_expired_key_is_unknown(engine, tmp_path, serve):
    """Keys end by themselves, so that rotating needs no second edit."""
    path = write_tenants(tmp_path / "tenants.toml", {"acme": "", "late": ""})
    path.write_text(path.read_text() + "expires = 2001-01-01\n")
    client = serve(engine, tenants=path)
    await complete(client, "acme")
    await complete(client, "late", 401)


async def test_without_a_file_everybody_is_one_open_tenant(client, engine):
    """As before: no key needed, the client's salt is used as it is, every tier may be asked for."""
    await complete(client, None, cache_salt="mine", service_tier="priority")
    request = engine.submitted[-1]
    assert (request.tenant, request.weight, request.cache_salt, request.tier) == ("", 1.0, "mine", Tier.PRIORITY)


async def test_the_file_can_be_read_again_by_an_admin(engine, tmp_path, serve):
    """A new tenant comes in, a bad file is a 400 that changes nothing, and only admins may ask."""
    path = write_tenants(tmp_path / "tenants.toml", {"acme": "", "root": "admin = true"})
    client = serve(engine, tenants=path)
    await complete(client, "new", 401)
    write_tenants(path, {"acme": "", "root": "admin = true", "new": ""})
    reload = "/admin/tenants/reload"
    assert (await client.post(reload)).status_code == 401
    assert (await client.post(reload, headers=bearer("acme"))).status_code == 403
    assert (await client.post(reload, headers=bearer("root"))).json() == {"tenants": ["acme", "root", "new"]}
    await complete(client, "new")
    path.write_text("[tenants.acme]\nweight = 0")
    refused = await client.post(reload, headers=bearer("root"))
    assert (refused.status_code, "tenants.acme.weight" in refused.text) == (400, True)
    await complete(client, "new")
    listed = await client.get("/admin/tenants", headers=bearer("root"))
    cards = {card["name"]: card for card in listed.json()["tenants"]}
    assert (cards["new"]["used"]["requests"], cards["new"]["num_running"]) == (2, 0)
    assert "sha256" not in listed.text


async def test_management_without_any_key_is_for_programs_on_this_machine(engine, serve):
    """Loopback with a loopback Host and no Origin: no browser page and no rebound name. Any key closes it."""
    client = serve(engine)
    assert (await client.get("/admin/tenants", headers={"host": "localhost:8000"})).status_code == 200
    for headers in ({"host": "evil.example"}, {"host": "127.0.0.1", "origin": "http://evil.example"}):
        assert (await client.get("/admin/tenants", headers=headers)).status_code == 403
    closed = serve(engine, api_keys=("k",))
    local = {"host": "127.0.0.1"}
    assert (await closed.get("/admin/tenants", headers=local)).status_code == 401
    assert (await closed.get("/admin/tenants", headers=local | {"authorization": "Bearer k"})).status_code == 403
    managed = serve(engine, admin_keys=("boss",))
    assert (await managed.get("/admin/tenants", headers=local)).status_code == 403
    assert (await managed.get("/admin/tenants", headers={"authorization": "Bearer boss"})).status_code == 200
    await complete(managed, None)


async def test_an_admin_key_beside_tenants_manages_and_generates_nothing(engine, open_house):
    """It belongs to no tenant, so there is nobody whose limits would hold."""
    client = open_house(engine, {"acme": ""}, admin_keys=("boss",))
    boss = {"authorization": "Bearer boss"}
    assert (await client.get("/admin/tenants", headers=boss)).status_code == 200
    assert (await client.post("/v1/completions", json=GOOD, headers=boss)).status_code == 403


async def test_tokens_and_requests_per_tenant_are_on_the_page(engine, open_house):
    """With the label `tenant`; refused ones apart."""
    client = open_house(engine, {"acme": "requests_per_minute = 1\nrequest_burst = 1"}, metrics_access="open")
    await complete(client, "acme", max_tokens=4)
    await complete(client, "acme", 429)
    page = (await client.get("/metrics")).text
    for line in (
        'headway:tenant_tokens_total{kind="prompt",tenant="acme"} 2.0',
        'headway:tenant_tokens_total{kind="output",tenant="acme"} 4.0',
        'headway:tenant_requests_total{outcome="ended",tenant="acme"} 1.0',
        'headway:tenant_requests_total{outcome="refused",tenant="acme"} 1.0',
        'headway:tenant_requests_running{tenant="acme"} 0.0',
    ):
        assert line in page
