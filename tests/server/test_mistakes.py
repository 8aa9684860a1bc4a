"""Bad input: one error in OpenAI's shape, and no harm to anybody else."""

import json

import httpx
import pytest

from headway.errors import ExecutorFault, Overloaded, PolicyFault
from headway.server import ServerConfig, create_app
from tests.support import sse
from tests.support.fake_engine import FakeEngine

BIG = 10**30


@pytest.fixture(scope="module")
def house():
    """One engine and its application: mistakes leave nothing behind, so hundreds of tests may share them."""
    engine = FakeEngine()
    return engine, create_app(engine, ServerConfig())


@pytest.fixture
def engine(house):
    house[0].renew()
    return house[0]


@pytest.fixture
def client(house, engine):
    return httpx.AsyncClient(transport=httpx.ASGITransport(house[1]), base_url="http://server")


def shape(answer, status):
    """The error object, after checking that the answer has OpenAI's shape and one request id in head and body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    document = answer.json()
    assert document.keys() == {"error"}
    assert {"message", "type", "param", "code"} <= document["error"].keys()
    assert document["error"]["request_id"] == answer.headers["x-request-id"]
    assert document["error"]["message"]
    return document["error"]


async def complete(client, status, **body):
    return shape(await client.post("/v1/completions", json={"prompt": "Hi", **body}), status)


NUMBERS = [
    *[("n", value) for value in (0, -1, 129, BIG, 129.0, 1.5, "1", True, [1], {})],
    *[("max_tokens", value) for value in (-1, 0, 2**31, 2**63, BIG, 1e18, 3.5, "3", True, [])],
    *[("temperature", value) for value in (-0.1, 2.1, BIG, "1", True, [], {})],
    *[("top_p", value) for value in (0, -0.1, 1.1, "1", False)],
    *[("top_k", value) for value in (-2, 2**31, 1.5, "1", True)],
    *[("min_p", value) for value in (-0.1, 1.1, "0")],
    *[("presence_penalty", value) for value in (-2.1, 2.1, "0", True)],
    *[("frequency_penalty", value) for value in (-2.1, 2.1, "0", True)],
    *[("repetition_penalty", value) for value in (0, -1, 101, "1")],
    *[("seed", value) for value in (2**63, -(2**63) - 1, 1.5, "1", True)],
    *[("min_tokens", value) for value in (-1, 17, 2**31, "1", True)],
    *[("logprobs", value) for value in (-1, 21, BIG, 1.5, "1", True)],
    *[("prompt_logprobs", value) for value in (-1, 21, "1", True)],
    *[("best_of", value) for value in (0, 2, "1")],
    *[("priority", value) for value in (2**31, -(2**31), 1.5, "1", True)],
]


@pytest.mark.parametrize(("field", "value"), NUMBERS)
async def test_every_number_has_two_bounds_and_one_type(client, engine, field, value):
    """PUBLIC_ISSUES 9.4, 9.7: a value outside, of another type or too large for anything is a 400 naming the field."""
    error = await complete(client, 400, **{field: value})
    assert error["param"] == field
    assert field in error["message"]
    assert engine.submitted == []


FIELDS = {
    "stream": ("true", 1, [], {}),
    "stream_options": (True, "x", [1]),
    "echo": ("x", 1, []),
    "ignore_eos": ("true", 0, {}),
    "stop": (1, [1], {"a": 1}, True, [None]),
    "logit_bias": ([], "x", {"a": 1}, {"1": "x"}, {"1": None}, {"1": True}, {"1_0": 1}, {"1": 101}, {"1": 1e300}),
    "stop_token_ids": ("x", [1.5], ["1"], [True], {}),
    "allowed_token_ids": ("x", ["1"], []),
    "bad_words": ("x", [1], ["x", ""]),
    "cache_salt": (1, [], "x" * 2000),
    "request_id": (1, {}),
    "prompt": (None, 1, True, {}, [], [1.5], ["a", 1], [1, "a"], [True], [[1], ["a"]], [[1], 1], [None]),
    "model": (1, [], {}),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in FIELDS.items() for value in values])
async def test_a_wrong_type_is_named(client, engine, field, value):
    """PUBLIC_ISSUES 9.20, 9.2: each field refuses other types by name."""
    error = await complete(client, 400, **{field: value})
    assert error["param"].split("[")[0].split(".")[0] == field
    assert engine.submitted == []


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"])
async def test_nan_and_infinity_are_no_json(client, field, literal):
    """PUBLIC_ISSUES 9.5: literals that other parsers accept, and numbers beyond a double, are a 400."""
    body = f'{{"prompt": "Hi", "{field}": {literal}}}'
    shape(await client.post("/v1/completions", content=body, headers={"content-type": "application/json"}), 400)


@pytest.mark.parametrize("prompt", ["", [""], ["a", ""], [[]], [[1], []]])
async def test_an_empty_prompt_is_refused(client, engine, prompt):
    """PUBLIC_ISSUES 9.1: in every shape, before anything is submitted."""
    assert (await complete(client, 400, prompt=prompt))["param"] == "prompt"
    assert engine.submitted == []


STOPS_GOOD = ([], ["x"] * 64, "x", "x" * 1024)
STOPS_BAD = ("", [""], ["", "x"], ["x"] * 1000, "x" * 100_000)


@pytest.mark.parametrize(("stop", "is_good"), [*((s, True) for s in STOPS_GOOD), *((s, False) for s in STOPS_BAD)])
async def test_stop_strings_are_few_and_not_empty(client, stop, is_good):
    """PUBLIC_ISSUES 9.10: an empty one, a thousand, or a very long one is a 400."""
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "stop": stop})
    if is_good:
        assert answer.status_code == 200
    else:
        assert shape(answer, 400)["param"] == "stop"


async def test_a_long_stop_string_is_told_its_limit(client):
    """Both numbers, in chat too."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stop": ["x", "y" * 1025]}
    error = shape(await client.post("/v1/chat/completions", json=body), 400)
    assert error["param"] == "stop"
    assert "1025" in error["message"]
    assert "1024" in error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", [99999]),
        ("prompt", [-1]),
        ("prompt", [2**40]),
        ("stop_token_ids", [99999]),
        ("allowed_token_ids", [-1]),
        ("logit_bias", {"99999": 1}),
        ("logit_bias", {"-1": 1}),
    ],
)
async def test_ids_outside_the_vocabulary_are_refused(client, field, value):
    """PUBLIC_ISSUES 9.2, 9.3: the engine's complaint about an id names the client's field."""
    assert (await complete(client, 400, **{field: value}))["param"] == field


async def test_lists_are_bounded(client):
    """PUBLIC_ISSUES 9.4: long lists, many prompts and n times prompts are refused."""
    assert (await complete(client, 400, prompt=["a"] * 1025))["param"] == "prompt"
    assert (await complete(client, 400, prompt=["a"] * 100, n=11))["param"] == "n"
    assert (await complete(client, 400, stop_token_ids=[1] * 1025))["param"] == "stop_token_ids"
    assert (await complete(client, 400, bad_words=["x"] * 257))["param"] == "bad_words"
    assert (await complete(client, 400, logit_bias={str(i): 1 for i in range(1025)}))["param"] == "logit_bias"


async def test_beyond_the_context_names_both_numbers(client, engine):
    """PUBLIC_ISSUES 9.11, 9.12: code, prompt size and limit are machine-readable; the shortened prompt passes."""
    error = await complete(client, 400, prompt=[5] * 250, max_tokens=10)
    assert error["code"] == "context_length_exceeded"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (250, 256)
    assert "260" in error["message"]
    assert "256" in error["message"]
    assert (await complete(client, 400, prompt=[5] * 100_000))["n_prompt_tokens"] == 100_000
    answer = await client.post("/v1/completions", json={"prompt": [5] * 246, "max_tokens": 10})
    assert answer.status_code == 200


async def test_a_text_that_cannot_fit_is_not_tokenized(client, engine):
    """PUBLIC_ISSUES 10.13: a text longer than the longest tokens could cover is refused by its length alone."""
    engine.encode = None
    error = await complete(client, 400, prompt="x" * 200_000)
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "x"),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("prediction", {"type": "content"}),
        ("web_search_options", {}),
        ("use_beam_search", True),
        ("guided_json", {}),
        ("truncate_prompt_tokens", 5),
        ("chat_template", "{{ 1 }}"),
    ],
)
async def test_what_is_known_but_not_supported_is_refused_by_name(client, field, value):
    """Nobody shall believe that a constraint was honoured: 400 naming the field (PUBLIC_ISSUES 14.10)."""
    error = await complete(client, 400, **{field: value})
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


async def test_harmless_values_and_unknown_fields_are_accepted(client, caplog):
    """Fields that ask for nothing pass, unknown ones pass with a debug line."""
    caplog.set_level("DEBUG", "headway.server.schema")
    body = {
        "prompt": "Hi", "response_format": {"type": "text"}, "tools": [], "tool_choice": "auto", "suffix": None,
        "modalities": ["text"], "user": "u", "store": False, "made_up": {"a": 1}, "parallel_tool_calls": True,
    }  # fmt: skip
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200
    assert any("made_up" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "Hi"',
        b'{"prompt": "Hi"} x',
        b'"text"',
        b"[]",
        b"null",
        b"17",
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\xed\xa0\x80"}',
        rb'{"prompt": "\ud800"}',
        rb'{"prompt": "\ud83d x"}',
        rb'{"prompt": "\udc00"}',
        b'\xef\xbb\xbf{"prompt": "Hi"}',
        b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"x":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"prompt": "Hi", "max_tokens": ' + b"9" * 100_000 + b"}",
        "{'prompt': 'Hi'}".encode("utf-16"),
    ],
)
async def test_what_is_no_json_object_is_one_400(client, engine, body):
    """PUBLIC_ISSUES 9.18: broken, hostile and wrongly encoded bodies; the error itself is valid UTF-8."""
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        shape(await client.post(path, content=body, headers={"content-type": "application/json"}), 400)
    assert engine.submitted == []


@pytest.mark.parametrize(
    ("body", "half"),
    [
        (rb'{"prompt": "a\ud800"}', r"\ud800, at byte 13"),
        (rb'{"prompt": "\uD83D\uDE42 \uD83D x"}', r"\uD83D, at byte 25"),
        (rb'{"prompt": "\udc00"}', r"\udc00, at byte 12"),
    ],
)
async def test_half_of_a_surrogate_pair_is_pointed_at(client, body, half):
    """Not called a truncated body: the message has the escape and its place."""
    headers = {"content-type": "application/json"}
    assert half in shape(await client.post("/v1/completions", content=body, headers=headers), 400)["message"]


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_an_empty_body_is_called_empty(client, body):
    """`curl -X POST` without -d: not a truncated document."""
    error = shape(await client.post("/v1/completions", content=body), 400)
    assert error["message"] == "the body is not valid JSON: it is empty"


async def test_strange_but_valid_json_is_served(client):
    """NUL, astral characters, duplicate keys (the last one counts) and a missing Content-Type are fine."""
    body = '{"prompt": "a", "prompt": "\\u0000\\ud83d\\ude42🙂", "max_tokens": 1}'.encode()
    answer = await client.post("/v1/completions", content=body)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
async def test_other_media_types_are_refused(client, headers):
    """Only plain JSON is read: no forms that a web page could post unasked, no compressed bombs."""
    shape(await client.post("/v1/completions", content=b'{"prompt": "Hi"}', headers=headers), 415)


async def test_a_body_over_the_limit_is_413(engine, serve):
    """A declared length is refused unread, an undeclared one as soon as the limit is passed."""
    client = serve(engine, max_body_bytes=2048)
    error = await complete(client, 413, prompt="x" * 4000)
    assert "2048" in error["message"]
    num_sent = 0

    async def endless():
        nonlocal num_sent
        while True:
            num_sent += 1
            yield b"x" * 2**20

    answer = await client.post("/v1/completions", content=endless(), headers={"content-type": "application/json"})
    shape(answer, 413)
    assert num_sent < 20  # megabytes; it never ends by itself


async def test_an_unknown_model_is_404(client):
    """The error lists what is served; no model, or an empty one, means the default."""
    error = await complete(client, 404, model="gpt-4")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "fake" in error["message"]
    for model in (None, "", "fake"):
        assert (await client.post("/v1/completions", json={"prompt": "Hi", "model": model})).status_code == 200
    huge = await complete(client, 404, model="x" * 1_000_000)
    assert len(json.dumps(huge)) < 2000


async def test_a_priority_that_nobody_honours_is_refused(client, engine):
    """A non-zero priority is a 400 under a policy that ignores it, and passes under one that does not."""
    assert (await complete(client, 400, priority=3))["param"] == "priority"
    engine.honours_priority = True
    assert (await client.post("/v1/completions", json={"prompt": "Hi", "priority": 3})).status_code == 200
    assert engine.submitted[-1].priority == 3


@pytest.mark.parametrize(
    ("method", "path", "status", "instead"),
    [
        ("GET", "/", 404, "/docs"),
        ("POST", "/chat/completions", 404, "/v1/chat/completions"),
        ("POST", "/v1/models", 405, "only GET"),
        ("GET", "/v1/completions", 405, "only POST"),
        ("GET", "/v1/models/", 404, "available: fake"),
    ],
)
async def test_routes_that_are_not_there(client, method, path, status, instead):
    """404 and 405 have OpenAI's shape too, and say what there is instead."""
    answer = await client.request(method, path)
    assert instead in shape(answer, status)["message"]
    assert status == 404 or answer.headers["allow"]


async def test_a_parameter_of_the_url_of_the_wrong_type_is_400(engine, serve):
    """Not the framework's own 422: OpenAI's shape, and the parameter's name."""
    client = serve(engine, admin_keys=("key",))
    answer = await client.get("/admin/steps?last=many", headers={"authorization": "Bearer key"})
    error = shape(answer, 400)
    assert error["param"] == "last"
    assert error["message"].startswith("last: input should be a valid integer")


@pytest.mark.parametrize("stream", [False, True])
async def test_overload_is_503_with_retry_after(client, engine, stream):
    """PUBLIC_ISSUES 10.3: refused at the door, whole or streamed, with whole seconds to wait."""
    engine.refusal = Overloaded("too many", retry_after_s=1.2)
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "stream": stream})
    assert shape(answer, 503)["code"] == "overloaded"
    assert answer.headers["retry-after"] == "2"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Overloaded("evicted while waiting"), 503, "overloaded"),
        (ExecutorFault("device lost"), 500, "engine_fault"),
        (PolicyFault("vllm", "overspent"), 500, "engine_fault"),
        (RuntimeError("a bug with /secret/path"), 500, None),
    ],
)
async def test_failing_before_the_first_token_has_its_status(client, engine, caplog, fault, status, code, stream):
    """PUBLIC_ISSUES 6.13: until something is streamed the status is open, so a failure gets the right one."""
    engine.faults[0] = fault
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "stream": stream})
    error = shape(answer, status)
    assert error["code"] == code
    assert len(caplog.records) == (status == 500)
    assert "/secret" not in error["message"]
    assert engine.streams == {}


async def test_failing_in_the_middle_is_an_error_event(client, engine):
    """PUBLIC_ISSUES 6.14: the text so far, one error event, the terminator; no finish reason, nothing like success."""
    engine.faults[5] = ExecutorFault("device lost")
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "stream": True})
    assert answer.status_code == 200
    *chunks, last = sse.events(answer.text)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hello"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert last["error"]["code"] == "engine_fault"
    assert (await client.post("/v1/completions", json={"prompt": "Hi"})).status_code == 500


async def test_one_failing_prompt_ends_its_neighbours(client, engine):
    """PUBLIC_ISSUES 1.10: a call with three prompts of which one fails is one error, and leaves nothing running."""
    engine.faults[3] = ExecutorFault("device lost")
    await complete(client, 500, prompt=["a", "b", "c"])
    assert engine.streams == {}


async def test_nothing_happens_to_the_neighbours(client, engine):
    """A stream that runs beside a hundred bad requests says exactly what it says alone."""
    for field, value in NUMBERS:
        await client.post("/v1/completions", json={"prompt": "Hi", field: value})
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 50})
    assert answer.json()["choices"][0]["text"] == "Hello, world"
    assert len(engine.submitted) == 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [("abc-1.2:3", "abc-1.2:3"), ("bad id;<x>\t", "badidx"), ("y" * 500, "y" * 128)],
)
async def test_a_request_id_is_returned_clean(client, given, shown):
    """X-Request-Id comes back, on errors too, bounded and without characters that could break a header or a log."""
    answer = await client.post("/v1/completions", json={"prompt": "Hi"}, headers={"x-request-id": given})
    assert answer.headers["x-request-id"] == shown
    assert answer.json()["id"] == f"cmpl-{shown}"
    assert (await client.get("/nothing", headers={"x-request-id": given})).headers["x-request-id"] == shown


async def test_a_request_id_may_stand_in_the_body(client):
    """vLLM's request_id names the request where no header does; without either a fresh one is drawn."""
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "request_id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    first, second = [await client.post("/v1/completions", json={"prompt": "Hi"}) for _ in range(2)]
    assert first.headers["x-request-id"] != second.headers["x-request-id"]


async def test_two_requests_may_share_a_name(client, engine):
    """PUBLIC_ISSUES 9.14: a client's id is never a key; the engine sees unique ones."""
    for _ in range(10):
        await client.post("/v1/completions", json={"prompt": ["a", "b"]}, headers={"x-request-id": "same"})
    assert len({request.id for request in engine.submitted}) == 20
