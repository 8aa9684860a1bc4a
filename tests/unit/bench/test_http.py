import httpx
import pytest

from headway.bench import Broken, Call, Chunk, Closing, HttpSettings, HttpTarget, Refused, Unauthorized, Unreachable
from headway.bench.http import retry_after
from headway.errors import BadSetting
from tests.support.scripted import DONE, FINISH, ScriptedTransport, chat, completion, usage
from tests.support.virtual_loop import run_virtual

CALL = Call(id="r0", prompt="one two", num_prompt=2, num_output=3)


def pieces_of(script, call=CALL, **settings):
    """(pieces, transport) of one call."""
    transport = ScriptedTransport(script)

    async def read(clock):
        target = HttpTarget(HttpSettings(url="http://test/v1", **settings), clock, transport=transport)
        await target.check()
        return [piece async for piece in target.stream(call)]

    return run_virtual(read), transport


def plain(*steps):
    return lambda body, number: (200, {}, list(steps))


def test_a_request_has_standard_fields_only():
    """Nothing is sent that a strict server could refuse."""
    _, transport = pieces_of(plain((0, completion("a")), (0, FINISH), (0, DONE)))
    assert transport.bodies == [
        {
            "model": "scripted",
            "prompt": "one two",
            "max_tokens": 3,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_more_is_sent_when_told():
    """Extensions, keys and extra fields come from the settings."""
    call = Call(id="r0", prompt="hi", num_prompt=1, num_output=3, priority=2, key="tenant-key")
    _, transport = pieces_of(
        plain((0, chat("a")), (0, FINISH), (0, DONE)),
        call,
        endpoint="chat",
        fixed_length=True,
        priorities=True,
        reports_usage=False,
        fields={"top_p": 0.5},
        api_key="k",
    )
    body = transport.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert (body["ignore_eos"], body["min_tokens"], body["priority"], body["top_p"]) == (True, 3, 2, 0.5)
    assert "stream_options" not in body
    assert transport.headers[0]["authorization"] == "Bearer tenant-key"


def test_chunks_have_the_moment_of_their_arrival():
    """Text that comes in one read shares its time."""
    steps = [(0.5, completion("a") + completion("b")), (1.0, completion("c")), (0.25, FINISH + DONE)]
    pieces, _ = pieces_of(plain(*steps))
    assert [(piece.at_s, piece.text) for piece in pieces if isinstance(piece, Chunk)] == [
        (0.5, "a"),
        (0.5, "b"),
        (1.5, "c"),
    ]
    assert pieces[-1].at_s == 1.75


def test_cached_tokens_are_read_from_usage():
    """`prompt_tokens_details` tells what the prefix cache saved."""
    steps = [(0, completion("a")), (0, FINISH), (0, usage(9, 1, prompt_tokens_details={"cached_tokens": 8})), (0, DONE)]
    closing = pieces_of(plain(*steps))[0][-1]
    assert (closing.num_prompt, closing.num_output, closing.num_cached) == (9, 1, 8)


@pytest.mark.parametrize(
    ("status", "headers", "kind", "words"),
    [
        (429, {"retry-after": "7"}, Refused, "429"),
        (503, {}, Refused, "503"),
        (401, {}, Unauthorized, "--api-key"),
        (400, {}, Broken, "no such thing"),
        (500, {}, Broken, "500"),
    ],
)
def test_a_status_becomes_a_kind_of_trouble(status, headers, kind, words):
    """Refusals, missing keys and failures are told apart."""
    body = b'{"error": {"message": "no such thing"}}'
    with pytest.raises(kind, match=words) as caught:
        pieces_of(lambda *_: (status, {"content-type": "application/json"} | headers, [(0, body)]))
    assert caught.value.status == status
    if status == 429:
        assert caught.value.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(0, completion("a"))], "closed the stream before"),
        ([(0, completion("a")), (0, httpx.RemoteProtocolError("peer closed"))], "peer closed"),
        ([(0, completion("a")), (0, httpx.ReadTimeout("slow"))], "silent"),
        ([(0, b'data: {"error": {"message": "worker died"}}\n\n')], "worker died"),
    ],
)
def test_an_answer_that_is_not_whole_breaks(steps, words):
    """A connection that ends, an error in the stream, silence: none of them looks like a short answer."""
    with pytest.raises(Broken, match=words):
        pieces_of(plain(*steps))


def test_a_server_that_does_not_stream_is_refused_in_words():
    """One JSON document would give a TTFT that is the whole latency."""
    with pytest.raises(Broken, match="instead of streaming"):
        pieces_of(lambda *_: (200, {"content-type": "application/json"}, [(0, b"{}")]))


def test_a_body_that_never_ends_after_the_terminator_holds_nobody_up():
    """[DONE] was said; the rest gets a few seconds."""
    pieces, _ = pieces_of(plain((0, completion("a")), (0, FINISH + DONE), (3600, b": still here\n\n")))
    assert isinstance(pieces[-1], Closing)
    assert pieces[-1].at_s < 10


def test_nobody_there():
    """An unreachable server is named with its address."""

    class Nobody(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            raise httpx.ConnectError("refused")

    async def look(clock):
        await HttpTarget(HttpSettings(url="http://nowhere:1"), clock, transport=Nobody()).check()

    with pytest.raises(Unreachable, match="nowhere:1"):
        run_virtual(look)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", ""])
def test_what_is_no_url_is_refused(url):
    """With the form it should have."""
    with pytest.raises(BadSetting, match="url"):
        HttpSettings(url=url)


def test_retry_after_may_be_seconds_or_a_date():
    """RFC 9110 knows both; anything else is nothing."""
    assert retry_after("2.5") == 2.5
    assert retry_after("-1") == 0.0
    assert retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
    assert retry_after("Thu, 01 Jan 2099 00:00:00 GMT") > 1e9
    assert retry_after("soon") is None
    assert retry_after("") is None
