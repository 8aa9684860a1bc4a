"""Reading server-sent events in tests, strictly."""

import json


def events(text):
    """The JSON of every event; the stream must end with exactly one `[DONE]`, and comments are passed over."""
    blocks = text.split("\n\n")
    assert blocks.pop() == "", "the stream does not end with an empty line"
    data = []
    for block in blocks:
        if block.startswith(":"):
            continue
        assert block.startswith("data: "), block
        assert "\n" not in block, block
        data.append(block.removeprefix("data: "))
    assert data.pop() == "[DONE]"
    assert "[DONE]" not in data
    return [json.loads(entry) for entry in data]


def joined(chunks, member="text"):
    """Text of each choice, put together from a stream's chunks; nothing may follow a choice's finish."""
    texts, finished = {}, {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            index = choice["index"]
            assert index not in finished, "a chunk after the finish of its choice"
            text = choice["text"] if member == "text" else choice["delta"].get("content", "")
            texts[index] = texts.get(index, "") + text
            if choice["finish_reason"] is not None:
                finished[index] = choice["finish_reason"]
    assert texts.keys() == finished.keys(), "a choice without its finish"
    return texts, finished
