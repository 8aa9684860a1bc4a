import json

import pytest

from headway.errors import InvalidRequest
from headway.models import ChatTemplate
from headway.models.chat_template import MAX_CHARS, MAX_STEPS
from tests.support.tiny_model import CHAT_TEMPLATE

USER = {"role": "user", "content": "Hi"}
SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def refusal(source, messages=(USER,), **variables):
    """The one line with which a template refuses."""
    with pytest.raises(InvalidRequest) as caught:
        ChatTemplate(source).render(messages, **variables)
    assert "\n" not in str(caught.value)
    assert caught.value.param == "messages"
    return str(caught.value)


@pytest.mark.model
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER], SYSTEM + "<|im_start|>user\nHi<|im_end|>\n"),
        ([{"role": "system", "content": "Be brief."}, USER],
         "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"),
        ([{"role": "system", "content": ""}, USER],
         "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"),
        ([USER, {"role": "assistant", "content": "Ho"}, USER],
         SYSTEM + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
         "<|im_start|>user\nHi<|im_end|>\n"),
    ],
)  # fmt: skip
def test_the_default_models_template(real_template, messages, expected):
    """System prompt of its own unless one is given, several turns, an empty system prompt."""
    assert real_template.render(messages) == expected + "<|im_start|>assistant\n"
    assert real_template.render(messages, add_generation_prompt=False) == expected


def test_blocks_leave_no_blank_lines():
    """`trim_blocks` and `lstrip_blocks` are on, as templates expect."""
    source = "{% if true %}\n    {% set x = 1 %}\nA\n{% endif %}\nB"
    assert ChatTemplate(source).render([USER]) == "A\nB"


def test_what_templates_may_use():
    """Loop controls, `tojson` without HTML escapes, the date, tokens by name, variables of the caller."""
    source = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson }}{{ m | tojson(indent=1) }}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ mood }}{{ eos_token }}"
    )
    message = {"role": "user", "content": "<é>"}
    rendered = ChatTemplate(source, bos_text="<s>", eos_text="</s>").render([message, USER], mood="calm")
    plain, indented = (json.dumps(message, ensure_ascii=False, indent=indent) for indent in (None, 1))
    assert rendered == f"<s>{plain}{indented}4calm</s>"


def test_a_refusal_carries_the_templates_words():
    """`raise_exception` is the user's mistake, told in the template's own words."""
    assert "roles must alternate" in refusal("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize("source", ["{% if %}", "{% generation %}x", "{{ 'a' ", "{{ messages | no_such_filter }}"])
def test_a_template_that_does_not_compile_refuses_when_used(source):
    """Making it does not raise, so that completions work; rendering says why and in which line."""
    template = ChatTemplate("\n" + source)
    assert template.problem
    assert "does not compile (line 2)" in refusal("\n" + source)


def test_no_template():
    """Without one, the refusal names the way out."""
    assert "/v1/completions" in refusal(None)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7].content }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages.append(1) }}",
        "{{ nothing.at.all }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include 'other' %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ range(10 ** 9) | length }}",
        "{{ [1] | tojson(no_such=1) }}",
        "{{ strftime_now(3) }}",
        "{{ messages[0] | tojson(default=1) | from_json }}",
    ],
)
def test_a_failing_or_prying_template_is_one_refusal(source):
    """Errors of every kind, and ways out of the sandbox, end as InvalidRequest or as nothing."""
    try:
        assert ChatTemplate(source).render([USER]) == ""
    except InvalidRequest as error:
        assert "\n" not in str(error)  # noqa: PT017 - a harmless rendering is as good as a refusal


ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% for k in r %}{% endfor %}{% endfor %}{% endfor %}",
    "{% set r = 'x' * 99999 %}{% set y %}{% for i in r %}{% for j in r %}z{% endfor %}{% endfor %}{% endset %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_a_template_that_does_not_end_is_stopped(source, monkeypatch):
    """Loops over anything, with or without output, and macros that call each other are counted."""
    monkeypatch.setattr("headway.models.chat_template.MAX_STEPS", 5000)
    assert "within 5000 steps" in refusal(source)


@pytest.mark.slow  # a second for each
@pytest.mark.parametrize("source", ENDLESS)
def test_a_template_that_does_not_end_is_stopped_in_time(source):
    """The same, after as many steps as there really are."""
    assert f"within {MAX_STEPS} steps" in refusal(source)


def test_a_template_that_floods_is_stopped():
    """Output is bounded."""
    assert f"more than {MAX_CHARS} characters" in refusal("{% for i in range(9999) %}{{ 'x' * 99999 }}{% endfor %}")


def test_messages_stay_as_they_are():
    """A template cannot change what the caller holds."""
    messages = [dict(USER)]
    ChatTemplate(CHAT_TEMPLATE).render(messages)
    refusal("{{ messages[0].update({'role': 'system'}) }}", messages)
    assert messages == [USER]


def test_a_long_conversation_is_within_the_limits():
    """Ten thousand turns render."""
    assert ChatTemplate(CHAT_TEMPLATE).render([USER] * 10_000).count("Hi") == 10_000
