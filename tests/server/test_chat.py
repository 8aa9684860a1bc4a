import pytest

from tests.support import sse

USER = [{"role": "user", "content": "Hi"}]


async def chat(client, **body):
    answer = await client.post("/v1/chat/completions", json={"messages": USER, **body})
    assert answer.status_code == 200, answer.text
    return sse.events(answer.text) if body.get("stream") else answer.json()


async def refuse(client, **body):
    answer = await client.post("/v1/chat/completions", json={"messages": USER, **body})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


async def test_an_answer_is_a_message(client):
    """A chat completion has OpenAI's members, with `refusal` and `logprobs` null."""
    answer = await chat(client)
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"content": "Hello, world", "role": "assistant", "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
            "stop_reason": None,
        }
    ]


async def test_the_default_limit_is_the_rest_of_the_context(client, engine):
    """PUBLIC_ISSUES 9.21: without a limit a chat may fill the context, and not more."""
    await chat(client)
    assert engine.submitted[0].params.max_tokens is None


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"max_tokens": 5}, 5), ({"max_completion_tokens": 6}, 6), ({"max_tokens": 5, "max_completion_tokens": 6}, 6)],
)
async def test_the_newer_name_of_the_limit_wins(client, engine, limits, expected):
    """max_completion_tokens replaces max_tokens; both are understood."""
    answer = await chat(client, **limits)
    assert engine.submitted[0].params.max_tokens == expected
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == expected


async def test_a_stream_opens_with_the_role(client):
    """Each choice's first event carries the role and no text; then come the deltas, then one finish."""
    chunks = await chat(client, stream=True, n=2)
    for index in (0, 1):
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert all("role" not in delta for delta in deltas[1:])
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("body", [{}, {"n": 3}, {"logprobs": True, "top_logprobs": 2}])
async def test_a_stream_says_what_the_whole_answer_says(client, body):
    """Joined deltas equal the one-shot message, for each choice."""
    whole = await chat(client, **body)
    texts, finished = sse.joined(await chat(client, stream=True, **body), "delta")
    assert texts == {choice["index"]: choice["message"]["content"] for choice in whole["choices"]}
    assert finished == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}


async def test_logprobs_have_exact_bytes(client, engine):
    """PUBLIC_ISSUES 6.18: joining the bytes of all entries gives the text, whatever tokens split its characters."""
    engine.answer = "a€🙂"
    content = (await chat(client, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == "a€🙂"
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    assert content[0]["token"] == "a"


async def test_logprobs_without_alternatives(client):
    """PUBLIC_ISSUES 9.16: logprobs without top_logprobs reports the chosen tokens; top_logprobs alone is refused."""
    content = (await chat(client, logprobs=True))["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[]] * 12
    assert (await refuse(client, top_logprobs=3))["param"] == "top_logprobs"


async def test_text_parts_are_joined(client, engine):
    """A list of text parts is one text, its parts on lines of their own; `developer` is `system` to the template."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    await chat(client, messages=[{"role": "developer", "content": "s"}, {"role": "user", "content": parts}])
    assert engine.tokenizer.decode(engine.submitted[0].prompt_ids) == "<system>s<user>a\nb<assistant>"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x", "tool_call_id": "1"}, "messages[1].role"),
        ({"role": "function", "content": "x", "name": "f"}, "messages[1].role"),
        ({"role": "king", "content": "x"}, "messages[1].role"),
        ({"role": 3, "content": "x"}, "messages[1].role"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": []}, "messages[1].content"),
        ({"role": "user", "content": {"a": 1}}, "messages[1].content"),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "messages[1].content[0]"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "messages[1].tool_calls"),
    ],
)
async def test_a_bad_message_is_named(client, message, param):
    """What this server does not read in a message is refused, with the place of the part at fault."""
    assert (await refuse(client, messages=[*USER, message]))["param"] == param


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "king", "content": "x"}, "role is 'king'; it must be one of system,"),
        ({"role": 3, "content": "x"}, "role is no string;"),
        ({"content": "x"}, "role is missing;"),
        ("x", "should be an object, not 'x'"),
    ],
)
async def test_a_bad_message_is_told_in_json_s_words(client, message, words):
    """What was sent, and what would be right; nothing about Python."""
    assert words in (await refuse(client, messages=[*USER, message]))["message"]


@pytest.mark.parametrize("messages", [[], "Hi", [1], [[]], {}, None])
async def test_messages_must_be_a_list_of_objects(client, messages):
    """Anything else is one 400 that names messages."""
    assert (await refuse(client, messages=messages))["param"].startswith("messages")


async def test_template_variables_pass_but_not_ours(client, engine):
    """chat_template_kwargs reach the template; those that the server sets are refused; its own refusal is a 400."""
    await chat(client, chat_template_kwargs={"enable_thinking": False})
    await chat(client, chat_template_kwargs={"self": 1})
    assert (await refuse(client, chat_template_kwargs={"messages": []}))["param"] == "chat_template_kwargs.messages"
    assert (await refuse(client, chat_template_kwargs={"a b": 1}))["param"] == "chat_template_kwargs"
    error = await refuse(client, chat_template_kwargs={"fail": True})
    assert error["param"] == "messages"
    assert "template" in error["message"]


async def test_the_last_message_may_be_continued(client, engine):
    """vLLM's continue_final_message reaches the template; beside an explicit new turn it is a 400 that names it."""
    seen = []
    plain = engine.chat_ids
    engine.chat_ids = lambda messages, **variables: seen.append(variables) or plain(messages, **variables)
    body = {"messages": [{"role": "assistant", "content": "The capital is"}], "continue_final_message": True}
    for path in ("/v1/chat/completions", "/tokenize"):
        for more in ({}, {"add_generation_prompt": False}):
            assert (await client.post(path, json=body | more)).status_code == 200
            assert seen.pop() == {"continue_final_message": True}
        answer = await client.post(path, json=body | {"add_generation_prompt": True})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "continue_final_message")
    kwargs = {"chat_template_kwargs": {"continue_final_message": True}}
    assert (await client.post("/v1/chat/completions", json=body | kwargs)).status_code == 400


async def test_limits_are_named_as_the_client_wrote_them(client):
    """An error about the limit names max_completion_tokens where that was sent."""
    error = await refuse(client, max_completion_tokens=0)
    assert error["param"] == "max_completion_tokens"
    assert error["message"].startswith("max_completion_tokens is 0")
    assert (await refuse(client, logprobs=True, top_logprobs=21))["param"] == "top_logprobs"
