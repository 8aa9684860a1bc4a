"""How a body that we read ourselves is shown in `/openapi.json` and `/docs`."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel


@cache
def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI entry of a required JSON body, self-contained."""
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema)}}}}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its `$defs` put where they are referred to: none of ours refers to itself."""
    definitions = schema.pop("$defs", {})

    def resolve(node: object) -> object:
        match node:
            case {"$ref": str(ref)}:
                return resolve(definitions[ref.rpartition("/")[2]])
            case dict():
                return {key: resolve(value) for key, value in node.items()}
            case list():
                return [resolve(value) for value in node]
            case _:
                return node

    return {key: resolve(value) for key, value in schema.items()}
