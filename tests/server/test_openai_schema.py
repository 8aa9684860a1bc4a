"""OpenAI's own schema against the server: whatever it allows is never a 5xx, and bodies of 200 conform to it."""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from headway.server import ServerConfig, create_app
from tests.support.fake_engine import FakeEngine

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

MODEL = "gpt-4o-mini"
PATHS = ["/completions", "/chat/completions", "/models", "/models/{model}"]


NUM_EXAMPLES = {
    ("short", "positive"): 4,
    ("short", "negative"): 2,
    ("long", "positive"): 50,
    ("long", "negative"): 25,
}

# What we refuse by name: left in, nearly every request would end there.
REFUSED = {
    *("suffix", "best_of", "tools", "tool_choice", "functions", "function_call", "audio", "prediction"),
    *("web_search_options", "response_format", "modalities", "logit_bias", "stream_options"),
}


@pytest.fixture
def schema(shared_data):
    """The four paths, with one model everywhere, so that requests come as far as they can."""
    document = json.loads((shared_data / "openai_openapi_subset.json").read_text())
    document["servers"] = [{"url": "http://server/v1"}]
    for part in _objects(document["components"]["schemas"]):
        if "model" in part.get("properties", {}):
            part["properties"]["model"] = {"type": "string", "enum": [MODEL]}
    document["paths"]["/models/{model}"]["get"]["parameters"][0]["schema"] = {"type": "string", "enum": [MODEL, "x"]}
    return document


def narrow(schema):
    """Leave out what this server refuses, and prompts that are empty or no prompts."""
    for part in _objects(schema["components"]["schemas"]):
        properties = part.get("properties", {})
        if "stream_options" in properties or "presence_penalty" in properties:
            for name in REFUSED & properties.keys():
                del properties[name]
        if "prompt" in properties:
            properties["prompt"] = {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "minItems": 1, "maxItems": 5, "items": {"type": "string", "minLength": 1}},
                    {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0, "maximum": 200}},
                ]
            }


def _objects(node):
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from _objects(value)


def scores_prompt(body):
    """The schema forgets the null that OpenAI, too, gives as the log probability of a prompt's first token."""
    return isinstance(body, dict) and body.get("echo") and body.get("logprobs") is not None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("mode", "effort"),
    [
        ("positive", "short"),
        ("negative", "short"),
        pytest.param("positive", "long", marks=pytest.mark.slow),  # the same search, longer: half a minute
        pytest.param("negative", "long", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the generator's own
def test_whatever_the_schema_allows_or_forbids(schema, path, mode, effort):
    """No input makes a 5xx, and every whole answer with 200 has the shape that OpenAI documents."""
    import schemathesis  # takes a second, which other tests need not wait for
    from schemathesis.checks import CHECKS, load_all_checks

    mode = schemathesis.GenerationMode(mode)
    engine = FakeEngine(max_model_len=4096)
    if mode is schemathesis.GenerationMode.POSITIVE:
        narrow(schema)
    loaded = schemathesis.openapi.from_dict(schema)
    loaded.app = create_app(engine, ServerConfig(served_model_names=(MODEL,)))
    load_all_checks()
    no_5xx, conforms = CHECKS.get_by_names(["not_a_server_error", "response_schema_conformance"])
    statuses = Counter()

    @settings(
        max_examples=NUM_EXAMPLES[effort, mode.value],
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(loaded[path]["get" if "models" in path else "post"].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call()
        statuses[response.status_code] += 1
        is_whole = response.status_code == 200 and response.headers["content-type"] == ["application/json"]
        is_known = is_whole and not scores_prompt(case.body)
        case.validate_response(response, checks=[no_5xx, conforms] if is_known else [no_5xx])

    check()
    assert engine.streams == {}
    assert statuses
    if mode is schemathesis.GenerationMode.POSITIVE:  # of wrong ones none need be right
        assert statuses[200] > 0
