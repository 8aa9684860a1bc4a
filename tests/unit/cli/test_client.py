"""chat and complete against a pretended server."""

import io
import signal
import sys

import httpx
import pytest

from headway.cli.chat import Conversation
from headway.cli.client import Client, NoAnswer
from headway.errors import BadSetting

pytestmark = pytest.mark.server


def test_chat_once(headway, fake_server):
    """One message: the answer streams to stdout; flags become fields, what was not given is not sent."""
    args = ("chat", "Where?", "--url", fake_server.url, "--system", "Be brief.", "--max-tokens", "5", "--api-key", "k")
    assert headway(*args) == (0, "Paris.\n", "")
    [(path, key, body)] = fake_server.asked
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert body == {
        "model": "fake-model",
        "max_tokens": 5,
        "stream": True,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}],
    }


def test_chat_reads_a_pipe(headway, fake_server, monkeypatch):
    """A piped stdin is one message; the URL may end in /v1."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("Where?\nTell me.\n"))
    assert headway("chat", "--url", f"{fake_server.url}/v1/")[:2] == (0, "Paris.\n")
    assert fake_server.asked[0][2]["messages"] == [{"role": "user", "content": "Where?\nTell me.\n"}]


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_what_no_server_takes_from_a_pipe(headway, fake_server, monkeypatch, command):
    """More than any context holds, and bytes that are no text, are one line and not sent."""
    monkeypatch.setattr("headway.cli.piped.MOST_CHARACTERS", 10)
    for data, errors, message in (
        (b"0123456789.", "strict", "stdin has more than 10 characters"),
        (b"ab\xff", "strict", "stdin is not UTF-8: invalid start byte at byte 2"),
        (b"ab\xff", "surrogateescape", "the text is not UTF-8"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8", errors=errors))
        status, out, err = headway(command, "--url", fake_server.url)
        assert (status, out) == (2, "")
        assert message in err
    assert fake_server.asked == []


@pytest.mark.parametrize(("command", "message"), [("chat", "nothing to ask"), ("complete", "no text to continue")])
def test_nothing_to_send(headway, fake_server, monkeypatch, command, message):
    """An empty pipe, and an empty argument, end with what was expected; nothing is sent."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for words in ([], [""]):
        status, out, err = headway(command, *words, "--url", fake_server.url)
        assert (status, out) == (2, "")
        assert err.startswith(f"headway: there is {message}; give ")
        assert "pipe one in" in err
    assert fake_server.asked == []


@pytest.mark.parametrize(("command", "said"), [("chat", "nothing to ask"), ("complete", "no text to continue")])
def test_a_stdin_that_is_closed_is_an_empty_one(headway, fake_server, monkeypatch, command, said):
    """Started with `<&-`, as by some supervisors, Python has no stdin at all: a message, and nothing sent."""
    monkeypatch.setattr(sys, "stdin", None)
    status, out, err = headway(command, "--url", fake_server.url)
    assert (status, out, said in err) == (2, "", True)
    assert fake_server.asked == []


def test_chat_in_a_terminal(headway, fake_server, monkeypatch):
    """A conversation keeps its history, /reset forgets all but the system message, /exit leaves."""
    lines = iter(["Where?", "", "And?", "/reset", "Anew", "/exit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    status, out, _ = headway("chat", "--url", fake_server.url, "--system", "S")
    assert (status, out) == (0, "Paris.\n" * 3)
    texts = [[message["content"] for message in body["messages"]] for _, _, body in fake_server.asked]
    assert texts == [["S", "Where?"], ["S", "Where?", "Paris.", "And?"], ["S", "Anew"]]


def test_the_end_of_input_leaves_a_chat(headway, fake_server, monkeypatch):
    """Ctrl-D at the prompt is a farewell."""

    def end(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    assert headway("chat", "--url", fake_server.url)[0] == 0


def test_an_answer_cut_short_is_remembered(fake_server):
    """Closing the stream early keeps what was said; a question without any answer is forgotten."""
    with Client(fake_server.url) as client:
        talk = Conversation(client, None, {})
        pieces = talk.ask("Where?")
        assert next(pieces) == "Par"
        pieces.close()
        assert [message["content"] for message in talk.messages] == ["Where?", "Par"]
        fake_server.answers = []
        assert list(talk.ask("And?")) == [""] * 0
        assert len(talk.messages) == 2


def test_complete(headway, fake_server):
    """The continuation alone, with sampling flags as fields."""
    args = ("complete", "Once", "--url", fake_server.url, "--model", "m", "--temperature", "0", "--stop", "\n")
    assert headway(*args) == (0, "Paris.\n", "")
    [(path, _, body)] = fake_server.asked
    assert path == "/v1/completions"
    assert body == {"model": "m", "prompt": "Once", "temperature": 0, "stop": ["\n"], "stream": True}


def test_a_variable_with_several_keys_does_not_say_which_to_show(headway, monkeypatch):
    """What a server may be given: with all of them as one key, it would let nobody in."""
    monkeypatch.setenv("HEADWAY_API_KEY", "old new")
    status, _, err = headway("chat", "hi", "--url", "http://127.0.0.1:9")
    assert status == 2
    assert "holds several keys; give the one to be shown" in err


def test_a_key_of_spaces_alone_is_told_as_that(headway, monkeypatch):
    """It is not several; sent, it would be refused as a wrong one."""
    monkeypatch.setenv("HEADWAY_API_KEY", "  ")
    status, _, err = headway("chat", "hi", "--url", "http://127.0.0.1:9")
    assert status == 2
    assert "is white space and no key; give one, or leave it out" in err


def test_no_server(headway):
    """Nobody there: one line with the way out, status 1."""
    status, out, err = headway("chat", "hi", "--url", "http://127.0.0.1:9")
    assert (status, out) == (1, "")
    assert "headway serve" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("code", "mention"), [(401, "--api-key"), (404, "not like this"), (503, "503")])
def test_refused(headway, fake_server, code, mention):
    """The server's own words, and for a missing key how to give it."""
    fake_server.status = code
    status, out, err = headway("complete", "hi", "--url", fake_server.url, "--model", "m")
    assert (status, out) == (1, "")
    assert mention in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "mention"),
    [
        (b'data: {"choices": [{"text": "a"}]}\n\n', "before it was whole"),
        (b'data: {"error": {"message": "the step failed"}}\n\ndata: [DONE]\n\n', "the step failed"),
        (b"data: <html>\n\n", "no JSON"),
        (b"<html>", "before it was whole"),
    ],
)
def test_a_broken_stream_is_no_answer(content, mention):
    """An answer without its end, with an error inside, or of another kind never passes for a short one."""
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    with Client("http://test", transport=transport) as client, pytest.raises(NoAnswer, match=mention):
        list(client.complete("x", {}))


@pytest.mark.parametrize("content", [b"<html>", b"{}", b'{"data": []}', b"[]"])
def test_not_our_kind_of_server(content):
    """Something else listens there: said in one line."""
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    with Client("http://test", transport=transport) as client, pytest.raises(NoAnswer, match="OpenAI"):
        client.first_model()


@pytest.mark.parametrize("url", ["example.com", "http://", "http://a:b", "ftp://x", ""])
def test_bad_url(url):
    """A URL that is none is the user's mistake."""
    with pytest.raises(BadSetting, match="--url"):
        Client(url)


def test_ctrl_c_ends_quietly(fake_server, nursery):
    """SIGINT while an answer streams: status 130 and one line, no traceback, and the pieces that had come by then."""
    fake_server.hang.set()
    process = nursery.start("headway.cli.main:main", "chat", "hi", "--url", fake_server.url)
    assert fake_server.hanging.wait(20)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "headway: interrupted\n")
    assert out in ("", "Par", "Paris.")
