"""Whatever the log says of a request, it says of which."""

import logging

import pytest

from headway.engine import AsyncLLM
from headway.errors import ExecutorFault
from tests.support.engines import Faulty, simulated_engine

BODY = {"prompt": [5, 6], "max_tokens": 4}
NAMED = {"X-Request-Id": "order-66"}


def lines(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_is_logged_with_the_request(client, engine, caplog, stream):
    """Before the first token and, streamed, after it."""
    engine.faults = {2: RuntimeError("nobody foresaw this")}
    answer = await client.post("/v1/completions", json=BODY | {"prompt": "Hi", "stream": stream}, headers=NAMED)
    assert answer.headers["x-request-id"] == "order-66"
    assert lines(caplog, logging.ERROR) == ["request order-66: RuntimeError: nobody foresaw this"]


async def test_a_failure_outside_of_every_route_is_logged_with_the_request(client, engine, caplog, monkeypatch):
    """Also where the mistake is in what surrounds them."""
    monkeypatch.setattr("headway.server.access.Access._need", lambda *_: 1 / 0)
    assert (await client.post("/v1/completions", json=BODY, headers=NAMED)).status_code == 500
    assert lines(caplog, logging.ERROR) == ["request order-66: ZeroDivisionError: division by zero"]


async def test_a_step_that_failed_names_its_requests(caplog, serve):
    """The engine's line has ids in which the client's name can be found."""

    def plan(batch):
        return ExecutorFault("broken on purpose")

    async with AsyncLLM(engine=simulated_engine(wrap=lambda inner: Faulty(inner, plan))) as llm, serve(llm) as http:
        answer = await http.post("/v1/completions", json=BODY, headers=NAMED)
    assert answer.status_code == 500
    [line, _] = lines(caplog, logging.ERROR)
    assert "broken on purpose; requests cmpl-order-66-" in line


async def test_fields_that_nobody_reads_are_logged_with_the_request(client, caplog):
    """A name from the body counts as one from the header."""
    with caplog.at_level(logging.DEBUG, "headway.server.schema"):
        await client.post("/v1/completions", json=BODY | {"request_id": "mine", "colour": 3})
    assert lines(caplog, logging.DEBUG)[0] == "request mine: fields that nobody reads: colour"
