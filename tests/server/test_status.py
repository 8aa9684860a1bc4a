import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.engine.outputs import EngineStats
from headway.errors import BadSetting
from headway.server import ServerConfig


async def test_health_and_readiness_are_two_things(client, engine):
    """PUBLIC_ISSUES 10.8, 10.11: draining is alive and not ready; a dead engine is neither."""
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).status_code == 200
    assert (await client.head("/ready")).status_code == 200
    engine.begin_drain()
    assert (await client.get("/health")).status_code == 200
    answer = await client.get("/ready")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    engine.is_alive = False
    assert (await client.get("/health")).status_code == 503


async def test_new_requests_are_refused_while_draining(client, engine):
    """503 with Retry-After; their lengths are known then, so that a recording of the traffic has them."""
    engine.begin_drain()
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    for path, body in (("/v1/completions", {"prompt": "Hi"}), ("/v1/chat/completions", chat)):
        answer = await client.post(path, json=body)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "service_unavailable"


async def test_a_saturated_server_is_not_ready(engine, serve):
    """With as many requests waiting as the limit says, balancers are told to look elsewhere."""
    client = serve(engine, saturation=3)
    engine.stats = lambda: EngineStats(num_waiting=2)
    assert (await client.get("/ready")).status_code == 200
    engine.stats = lambda: EngineStats(num_waiting=3)
    answer = await client.get("/ready")
    assert answer.json()["error"]["code"] == "saturated"


async def test_models_say_what_a_request_may_use(engine, serve):
    """PUBLIC_ISSUES 12.1, 12.3: every served name, with the context that really fits."""
    client = serve(engine, served_model_names=("one", "org/two"))
    cards = (await client.get("/v1/models")).json()["data"]
    assert [(card["id"], card["object"], card["max_model_len"]) for card in cards] == [
        ("one", "model", 256),
        ("org/two", "model", 256),
    ]
    assert (await client.get("/v1/models/org/two")).json() == cards[1]
    answer = await client.get("/v1/models/three")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    for name in ("one", "org/two"):
        assert (await client.post("/v1/completions", json={"model": name, "prompt": "Hi"})).json()["model"] == name


async def test_tokens_and_back(client, engine):
    """/tokenize and /detokenize have vLLM's shapes and are each other's inverse, for any text."""
    for text in ("", "Hello", "é🙂 <|im_end|>"):
        answer = (await client.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
        assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
        assert answer["max_model_len"] == 256
        assert (await client.post("/detokenize", json={"tokens": answer["tokens"]})).json() == {"prompt": text}
    chat = (await client.post("/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]})).json()
    assert engine.tokenizer.decode(chat["tokens"]) == "<user>Hi<assistant>"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "x"}, "add_special_tokens"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [99999]}, "tokens"),
        ("/detokenize", {"tokens": [2**70]}, "tokens"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
async def test_bad_tokens_are_named(client, path, body, param):
    """The same rules as elsewhere: one 400, naming the field."""
    answer = await client.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_a_token_outside_the_vocabulary_is_shown(client):
    """Which one, and what there is."""
    answer = await client.post("/detokenize", json={"tokens": [1, 99999]})
    assert "token id 99999; this model's ids are 0 to " in answer.json()["error"]["message"]


async def test_version_and_load(client, engine):
    """/version names the version, /load what the engine holds."""
    assert (await client.get("/version")).json().keys() == {"version"}
    load = (await client.get("/load")).json()
    assert load == {"server_load": 0, "num_running": 0, "num_waiting": 0, "num_swapped": 0, "kv_cache_usage": 0.0}


async def test_metrics_follow_requests(client, engine):
    """PUBLIC_ISSUES 8.9, 8.10: the page parses, counts what happened, and reading it changes nothing."""
    await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 50})
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, sample.labels.get("finished_reason")): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["headway:prompt_tokens_total", None] == 2
    assert samples["headway:generation_tokens_total", None] == 12
    assert samples["headway:request_success_total", "length"] == 1
    assert samples["headway:time_to_first_token_seconds_count", None] == 1
    assert (await client.get("/metrics")).text == answer.text


async def test_the_schema_and_its_page_can_be_had(client):
    """/openapi.json describes the bodies that we read ourselves; /docs shows it."""
    document = (await client.get("/openapi.json")).json()
    body = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"prompt", "max_tokens", "top_k"} <= body["properties"].keys()
    assert "$ref" not in str(body)
    assert (await client.get("/docs")).status_code == 200


async def test_keys_guard_all_but_probes(engine, serve):
    """Any of the keys opens; without one everything but health, readiness and metrics is a 401 in OpenAI's shape."""
    client = serve(engine, api_keys=("first", "second"))
    for path in ("/health", "/ready", "/metrics"):
        assert (await client.get(path)).status_code == 200
    for path in ("/v1/models", "/version", "/load", "/docs", "/openapi.json", "/nothing", "/health/x"):
        answer = await client.get(path)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
    for key in ("first", "second"):
        assert (await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})).status_code == 200
        assert (await client.get("/v1/models", headers={"authorization": f"bearer  {key} "})).status_code == 200
    for shown in ("Bearer third", "Bearer", "Bearer ", "first", "Basic first", "Bearer first second", "Bearer FIRST"):
        answer = await client.get("/v1/models", headers={"authorization": shown})
        assert answer.status_code == 401, shown


async def test_a_prefix_that_a_proxy_adds(engine, serve):
    """With a root path, routes and open probes are found with and without the prefix."""
    client = serve(engine, root_path="/llm", api_keys=("key",))
    for prefix in ("", "/llm"):
        assert (await client.get(f"{prefix}/health")).status_code == 200
        answer = await client.get(f"{prefix}/v1/models", headers={"authorization": "Bearer key"})
        assert answer.status_code == 200


async def test_browsers_may_call_from_allowed_origins_only(engine, serve):
    """CORS headers for those origins, on preflights without a key too; for others none."""
    client = serve(engine, allowed_origins=("https://app.example",), api_keys=("key",))
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = await client.options("/v1/chat/completions", headers={"origin": "https://app.example", **preflight})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    answer = await client.get("/v1/models", headers={"origin": "https://app.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "https://app.example")
    answer = await client.get("/health", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


async def test_the_access_log_is_off_unless_wanted(engine, serve, caplog):
    """One line per request, with its id, only when asked for."""
    caplog.set_level("INFO", "headway.access")
    await serve(engine).get("/version")
    assert caplog.records == []
    await serve(engine, access_log=True).get("/version", headers={"x-request-id": "mine"})
    assert caplog.records[0].message.startswith("GET /version 200 ")
    assert caplog.records[0].message.endswith(" mine")


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"port": 65536},
        {"api_keys": ("",)},
        {"served_model_names": ("a", "")},
        {"root_path": "llm"},
        {"keep_alive_s": -1.0},
        {"shutdown_timeout_s": float("nan")},
        {"stall_timeout_s": float("inf")},
        {"saturation": -1},
        {"max_body_bytes": 0},
    ],
)
def test_settings_are_checked_at_birth(settings):
    """A setting out of range is one clear message before anything starts."""
    with pytest.raises(BadSetting):
        ServerConfig(**settings)
