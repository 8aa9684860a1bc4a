"""A model's chat template: Jinja source from its file, run in a sandbox with limits.

A template is a program that came with a file somebody downloaded. It sees the messages and nothing else, cannot change
them, and is stopped when it writes or computes too much.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headway.errors import InvalidRequest

MAX_STEPS = 250_000  # calls and rounds of loops in one rendering
MAX_CHARS = 32 << 20  # characters of one rendering, far above any context
_BUDGET, _ROUND = "_headway_budget", "_headway_round"

Json = Any  # a str, number, bool or None, or lists and dicts of them
Message = Mapping[str, Json]


class ChatTemplate:
    """A compiled chat template.

    A source that does not compile, or None, makes a template whose `render` refuses with the reason, so that a model
    with a broken template still serves plain completions. `problem` is that reason, None for a good template.
    """

    def __init__(self, source: str | None, *, bos_text: str = "", eos_text: str = "") -> None:
        self.source = source or ""
        self.problem: str | None = None
        self._tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._template: Template | None = None
        if source is None:
            self.problem = "this model has no chat template; use /v1/completions, or give it a template"
            return
        try:
            self._template = _compile(source)
        except (TemplateError, RecursionError) as error:
            line = f" (line {error.lineno})" if isinstance(error, TemplateSyntaxError) else ""
            self.problem = f"this model's chat template does not compile{line}: {_one_line(error)}"

    def render(self, messages: Sequence[Message], /, **variables: Json) -> str:
        """The prompt for a conversation, ending where the assistant's turn begins.

        `variables` are the template's own (`add_generation_prompt`, true unless given; `tools`, ...). Raises
        InvalidRequest with the template's message when it refuses the messages, fails, or runs beyond its limits.
        """
        if self._template is None:
            raise InvalidRequest(str(self.problem), param="messages")
        given = {"add_generation_prompt": True, **self._tokens, **variables, "messages": list(messages)}
        try:
            return _write(self._template, given)
        except _Refused as error:
            raise InvalidRequest(f"the chat template refuses: {_one_line(error)}", param="messages") from None
        except (TemplateError, _Beyond, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(f"the chat template fails: {_one_line(error)}", param="messages") from None
        except (RecursionError, MemoryError):
            raise InvalidRequest("the chat template fails: it needs too much memory", param="messages") from None


def _write(template: Template, variables: dict[str, Json]) -> str:
    pieces: list[str] = []
    num_chars = 0
    for piece in template.generate(variables | {_BUDGET: _Budget()}):
        pieces.append(piece)
        num_chars += len(piece)
        if num_chars > MAX_CHARS:
            raise _Beyond(f"it writes more than {MAX_CHARS} characters")
    return "".join(pieces)


class _Refused(Exception):
    """The template called `raise_exception`."""


class _Beyond(Exception):
    """The template used up its limits."""


class _Budget:
    """Steps left to one rendering."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Beyond(f"it does not end within {MAX_STEPS} steps")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which each call costs a step; loops pay by the call that `_compile` puts into them."""

    def call(self, context: Context, obj: Json, /, *args: Json, **kwargs: Json) -> Json:
        context[_BUDGET].spend()
        return super().call(context, obj, *args, **kwargs)


def _compile(source: str) -> Template:
    # Options, extensions and globals are those of Hugging Face, for which templates are written.
    env = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    env.filters["tojson"] = _to_json
    env.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now, _ROUND: _next_round}
    tree = env.parse(source)
    for loop in list(tree.find_all(nodes.For)):
        loop.body.insert(0, nodes.ExprStmt(nodes.Call(nodes.Name(_ROUND, "load"), [], [], None, None)))
    tree.set_environment(env)
    return Template.from_code(env, env.compile(tree), env.make_globals(None))


def _next_round() -> None:
    """Called once a round of a loop; the call itself is what costs a step."""


def _refuse(message: object) -> NoReturn:
    raise _Refused(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _to_json(value: Json, **options: Json) -> str:
    options.setdefault("ensure_ascii", False)  # as Hugging Face does; Jinja's own filter escapes for HTML
    return json.dumps(value, **options)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
