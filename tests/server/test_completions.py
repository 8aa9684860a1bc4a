import pytest

from tests.support import sse


async def complete(client, **body):
    answer = await client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": 50, **body})
    assert answer.status_code == 200, answer.text
    return sse.events(answer.text) if body.get("stream") else answer.json()


async def test_one_prompt_gives_one_choice_with_usage(client, engine):
    """A plain completion has OpenAI's members, the whole text, the reason it ended, and true counts."""
    engine.num_cached = 1
    answer = await complete(client)
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert answer["model"] == "fake"
    assert answer["choices"] == [
        {"index": 0, "text": "Hello, world", "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    ]
    counts = {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14}
    assert answer["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 1}}


async def test_max_tokens_is_16_unless_given(client, engine):
    """Completions default to 16 tokens, as in OpenAI's API."""
    await client.post("/v1/completions", json={"prompt": "Hi"})
    assert engine.submitted[0].params.max_tokens == 16


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hi", [[75, 108]]),
        (["Hi", "Ho"], [[75, 108], [75, 114]]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
async def test_prompts_come_in_four_shapes(client, engine, prompt, expected):
    """A string, strings, token ids and lists of token ids are all accepted; ids pass untouched."""
    answer = await complete(client, prompt=prompt)
    assert [list(request.prompt_ids) for request in engine.submitted] == expected
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))


async def test_several_prompts_and_choices_keep_their_order(client):
    """PUBLIC_ISSUES 9.17: three prompts with n = 4 give twelve choices, choice c of prompt p at 4p + c."""
    answer = await complete(client, prompt=["a", "b", "c"], n=4)
    assert [choice["index"] for choice in answer["choices"]] == list(range(12))
    whole = "Hello, world"
    assert [choice["text"] for choice in answer["choices"]] == [whole, whole[:-1], whole[:-2], whole[:-3]] * 3


@pytest.mark.parametrize("body", [{}, {"n": 3}, {"prompt": ["a", "b"], "n": 2}, {"echo": True}, {"logprobs": 2}])
async def test_a_stream_says_what_the_whole_answer_says(client, body):
    """PUBLIC_ISSUES 6.11: joined chunks equal the one-shot texts, with one finish per choice."""
    whole = await complete(client, **body)
    texts, finished = sse.joined(await complete(client, stream=True, **body))
    assert texts == {choice["index"]: choice["text"] for choice in whole["choices"]}
    assert finished == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}


async def test_echo_puts_the_prompt_in_front(client, engine):
    """With echo each choice begins with its prompt, decoded where it came as ids."""
    answer = await complete(client, prompt="Hi", echo=True)
    assert answer["choices"][0]["text"] == "HiHello, world"
    answer = await complete(client, prompt=engine.tokenizer.encode_text("Ho"), echo=True)
    assert answer["choices"][0]["text"] == "HoHello, world"


async def test_logprobs_are_parallel_lists(client, engine):
    """As many entries as tokens, offsets into the text, and the chosen token always among the top."""
    answer = await complete(client, logprobs=2)
    entry = answer["choices"][0]["logprobs"]
    assert "".join(entry["tokens"]) == "Hello, world"
    assert len(entry["tokens"]) == answer["usage"]["completion_tokens"]
    assert entry["text_offset"][:3] == [0, 1, 2]
    assert entry["token_logprobs"][0] == -0.5
    assert all(len(top) == 2 for top in entry["top_logprobs"])
    assert engine.submitted[0].params.logprobs == 2


async def test_logprobs_zero_is_not_off(client):
    """PUBLIC_ISSUES 9.16: 0 reports the chosen token and no alternatives."""
    entry = (await complete(client, logprobs=0))["choices"][0]["logprobs"]
    assert [list(top.values()) for top in entry["top_logprobs"][:2]] == [[-0.5], [-0.5]]


async def test_streamed_logprobs_add_up(client):
    """PUBLIC_ISSUES 6.7: logprobs of all chunks together are those of the one-shot answer, offsets included."""
    whole = (await complete(client, logprobs=1, echo=True))["choices"][0]["logprobs"]
    chunks = await complete(client, logprobs=1, echo=True, stream=True)
    for member, values in whole.items():
        assert [value for chunk in chunks for value in chunk["choices"][0]["logprobs"][member]] == values


async def test_characters_of_several_tokens_have_exact_bytes(client, engine):
    """PUBLIC_ISSUES 6.18: tokens that are parts of a character are named by their bytes and stay apart."""
    engine.answer = "é€"
    entry = (await complete(client, logprobs=0))["choices"][0]["logprobs"]
    assert entry["tokens"] == [rf"bytes:\x{byte:02x}" for byte in "é€".encode()]
    assert entry["text_offset"] == [0, 0, 1, 1, 1]


async def test_echo_with_logprobs_scores_the_prompt(client):
    """The prompt's tokens come first; nothing predicted the very first, so it has null."""
    entry = (await complete(client, prompt="Hi", echo=True, logprobs=1))["choices"][0]["logprobs"]
    assert "".join(entry["tokens"]) == "HiHello, world"
    assert entry["token_logprobs"][:3] == [None, -0.5, -0.5]
    assert entry["top_logprobs"][0] is None


async def test_scoring_without_generating(client, engine):
    """PUBLIC_ISSUES 9.8: echo with max_tokens 0 gives the prompt's logprobs and an empty output."""
    answer = await complete(client, prompt="Hi", echo=True, max_tokens=0, logprobs=1)
    choice = answer["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "length")
    assert "".join(choice["logprobs"]["tokens"]) == "Hi"
    assert answer["usage"]["completion_tokens"] == 0


async def test_prompt_logprobs_have_vllms_shape(client):
    """prompt_logprobs: null first, then an object by token id with logprob, rank and text."""
    shaped = (await complete(client, prompt=[10, 20], prompt_logprobs=1))["choices"][0]["prompt_logprobs"]
    assert shaped[0] is None
    assert shaped[1]["20"]["rank"] == 1
    assert len(shaped) == 2


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("options", "expects"),
    [({"include_usage": True}, True), ({"include_usage": False}, False), ({}, False), (None, False)],
)
async def test_usage_in_a_stream_only_when_asked(client, n, options, expects):
    """PUBLIC_ISSUES 6.8: with the flag all chunks carry null and one more has the totals; without, no member at all."""
    chunks = await complete(client, stream=True, stream_options=options, n=n)
    if not expects:
        assert all("usage" not in chunk for chunk in chunks)
        return
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == (await complete(client, n=n))["usage"]


async def test_continuous_usage_counts_up(client):
    """vLLM's continuous_usage_stats: each chunk carries the count so far, the last one the totals."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = await complete(client, stream=True, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-2] == counts[-1]


async def test_token_ids_on_request(client, engine):
    """return_token_ids adds the ids of prompt and output, whole and streamed."""
    whole = (await complete(client, return_token_ids=True))["choices"][0]
    chunks = await complete(client, return_token_ids=True, stream=True)
    assert whole["prompt_token_ids"] == engine.encode("Hi") == chunks[0]["choices"][0]["prompt_token_ids"]
    assert engine.tokenizer.decode(whole["token_ids"]) == "Hello, world"
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == whole["token_ids"]


async def test_every_parameter_reaches_the_engine(client, engine):
    """OpenAI's fields and vLLM's additions arrive as they were sent."""
    fields = {
        "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": 11, "presence_penalty": 0.5,
        "frequency_penalty": -0.5, "repetition_penalty": 1.5, "min_tokens": 3, "ignore_eos": True,
        "include_stop_str_in_output": True,
    }  # fmt: skip
    lists = {"stop_token_ids": [3], "allowed_token_ids": [4, 5], "bad_words": ["x"]}
    await complete(client, **fields, **lists, stop="END", logit_bias={"9": 1}, cache_salt="salt", priority=0)
    request = engine.submitted[0]
    assert {name: getattr(request.params, name) for name in fields} == fields
    assert {name: list(getattr(request.params, name)) for name in lists} == lists
    assert (request.params.stop, request.params.logit_bias) == (("END",), ((9, 1.0),))
    assert request.cache_salt == "salt"


async def test_a_float_without_a_fraction_is_whole(client, engine):
    """PUBLIC_ISSUES 9.7: 3.0 is an integer, as JSON Schema has it; some languages write all numbers so."""
    await complete(client, max_tokens=3.0, n=1.0, seed=-0.0)
    params = engine.submitted[0].params
    assert [repr(value) for value in (params.max_tokens, params.n, params.seed)] == ["3", "1", "0"]


async def test_nulls_mean_the_default(client, engine):
    """A field that is null counts as absent."""
    await complete(client, **dict.fromkeys(("n", "temperature", "stop", "seed", "logit_bias", "stream", "best_of")))
    assert engine.submitted[0].params.temperature == 1.0
    assert engine.submitted[0].params.n == 1


async def test_a_stop_string_is_named(client, engine):
    """What ended a choice is reported as stop_reason, in a stream by the finish chunk alone."""
    chunks = await complete(client, stream=True)
    assert ["stop_reason" in chunk["choices"][0] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_all_or_nothing(client, engine):
    """When one prompt of a call is refused, the others are aborted."""
    answer = await client.post("/v1/completions", json={"prompt": [[5], [6], [99999]]})
    assert answer.status_code == 400
    assert len(engine.submitted) == 2
    assert all(stream.is_aborted for stream in engine.streams.values())
