"""What the chat template is given: messages of a role and a text each, and variables."""

from __future__ import annotations

from typing import Any

from headway.errors import InvalidRequest
from headway.server.faults import Unsupported
from headway.server.schema import ChatRequest, TokenizeRequest

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""Roles of OpenAI's API and what templates call them."""


_OURS = frozenset({"messages", "add_generation_prompt", "continue_final_message", "tokenize", "bos_token", "eos_token"})


def plain_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with their text parts joined by newlines. Raises `InvalidRequest` naming the part at fault."""
    if not messages:
        raise InvalidRequest("messages is empty; send at least one", param="messages")
    return [_plain(message, f"messages[{index}]") for index, message in enumerate(messages)]


def template_variables(body: ChatRequest | TokenizeRequest) -> dict[str, Any]:
    """Variables for the chat template. Raises `InvalidRequest` for one that is not the client's to set."""
    variables = dict(body.chat_template_kwargs or {})
    if taken := _OURS & variables.keys():
        name = min(taken)
        raise InvalidRequest(f"chat_template_kwargs may not set {name}", param=f"chat_template_kwargs.{name}")
    if bad := next((name for name in variables if not name.isidentifier()), None):
        raise InvalidRequest(f"{bad[:40]!r} is no name of a template variable", param="chat_template_kwargs")
    if body.continue_final_message:
        if body.add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt exclude each other: either the last message goes on, "
                "or a new one begins",
                param="continue_final_message",
            )
        return {**variables, "continue_final_message": True}
    return {**variables, "add_generation_prompt": body.add_generation_prompt is not False}


def _plain(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role in ("tool", "function"):
        raise Unsupported(f"{where}: messages of role {role!r} are not supported by this server", param=f"{where}.role")
    if not isinstance(role, str) or role not in ROLES:
        given = f"is {role[:80]!r}" if isinstance(role, str) else "is no string" if "role" in message else "is missing"
        raise InvalidRequest(f"{where}.role {given}; it must be one of {', '.join(ROLES)}", param=f"{where}.role")
    for name in ("tool_calls", "function_call", "audio"):
        if message.get(name):
            raise Unsupported(f"{where}.{name} is not supported by this server", param=f"{where}.{name}")
    return {"role": ROLES[role], "content": _text(message.get("content"), f"{where}.content")}


def _text(content: object, where: str) -> str:
    match content:
        case str():
            return content
        case [_, *_]:
            return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))
        case _:
            raise InvalidRequest(f"{where} must be a string or a list of text parts", param=where)


def _part(part: object, where: str) -> str:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "text" | "refusal" as kind}:
            raise InvalidRequest(f"{where}.{kind} must be a string", param=f"{where}.{kind}")
        case {"type": str(kind)}:
            raise Unsupported(
                f"{where}: parts of type {kind[:40]!r} are not supported; this server reads text", param=where
            )
        case _:
            raise InvalidRequest(f"{where} must be an object with a type", param=where)
