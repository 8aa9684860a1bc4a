"""The official client, unchanged, against a real socket."""

import asyncio
import importlib

import httpx
import pytest

from headway.errors import ExecutorFault, Overloaded
from tests.support.fake_engine import FakeEngine
from tests.support.live_server import live

pytestmark = pytest.mark.server

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def openai():
    """The client's package: most of a second to load, which other tests need not wait for."""
    return importlib.import_module("openai")


@pytest.fixture(scope="module")
def server():
    with live(FakeEngine(), api_keys=("sesame",), max_body_bytes=2**20) as server:
        yield server


@pytest.fixture
def client(server, openai):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sesame", max_retries=0) as client:
        yield client


def test_models(client, openai):
    """The list and a single model."""
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").object == "model"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("other")
    assert caught.value.code == "model_not_found"


def test_completions(client):
    """Whole and streamed, with logprobs and usage."""
    whole = client.completions.create(model="fake", prompt="Hi", max_tokens=20, logprobs=1, n=2)
    assert [choice.text for choice in whole.choices] == ["Hello, world", "Hello, worl"]
    assert whole.choices[0].logprobs.tokens[0] == "H"
    chunks = list(client.completions.create(model="fake", prompt="Hi", max_tokens=20, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello, world"


def test_chat(client):
    """Whole and streamed, with logprobs and usage at the end."""
    whole = client.chat.completions.create(model="fake", messages=MESSAGES, logprobs=True, top_logprobs=2)
    assert whole.choices[0].message.content == "Hello, world"
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True, stream_options=options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello, world"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]].count("stop") == 1
    assert chunks[-1].usage == whole.usage


def test_extra_fields_and_ids(client):
    """vLLM's fields travel in extra_body; the request id comes back where the client looks for it."""
    answer = client.completions.with_raw_response.create(
        model="fake", prompt="Hi", extra_body={"top_k": 5, "min_p": 0.1}, extra_headers={"X-Request-Id": "mine"}
    )
    assert answer.request_id == "mine"
    assert answer.parse().id == "cmpl-mine"


def test_its_exceptions_fit(server, client, openai):
    """Each status becomes the exception that users catch, with its code."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fake", messages=MESSAGES, temperature=9)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.AuthenticationError) as caught:
        client.with_options(api_key="wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="Hi")
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(model="fake", prompt="x" * 2**21)
    assert caught.value.status_code == 413
    server.engine.refusal = Overloaded("full", retry_after_s=1)
    try:
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="fake", prompt="Hi")
    finally:
        server.engine.refusal = None
    assert caught.value.status_code == 503


def test_a_broken_stream_raises(server, client, openai):
    """PUBLIC_ISSUES 6.14: the error event in mid-stream becomes an exception, not a short answer."""
    server.engine.faults[4] = ExecutorFault("device lost")
    try:
        with pytest.raises(openai.APIError, match="device lost"):
            list(client.completions.create(model="fake", prompt="Hi", stream=True))
    finally:
        server.engine.faults.clear()


async def test_asynchronous_streams_side_by_side(server, openai):
    """Twenty at once, and one that is left early: its request is aborted."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sesame", max_retries=0) as client:

        async def one():
            stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        assert set(await asyncio.gather(*(one() for _ in range(20)))) == {"Hello, world"}
        server.engine.permits = 2
        try:
            stream = await client.chat.completions.create(model="fake", messages=MESSAGES, stream=True)
            await anext(aiter(stream))
            await stream.close()
            await asyncio.to_thread(server.until, lambda: not server.engine.streams)
        finally:
            server.call(server.engine.allow, None)


def test_a_large_body_is_refused_while_it_is_still_being_sent(server):
    """PUBLIC_ISSUES 9.18: 100 MB, declared or not, is a 413 that the client gets to read; memory does not grow."""
    headers = {"authorization": "Bearer sesame", "content-type": "application/json"}
    pieces_sent = 0

    def pieces():
        nonlocal pieces_sent
        for _ in range(100):
            pieces_sent += 1
            yield b"x" * 2**20

    for content, more in ((pieces(), {}), (pieces(), {"content-length": str(100 * 2**20)})):
        pieces_sent = 0
        answer = httpx.post(f"{server.url}/v1/completions", content=content, headers={**headers, **more})
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"
        assert pieces_sent < 50
