"""Sampling flags to request fields: what was not given is not sent, so that the server's defaults hold."""

from __future__ import annotations

from typing import Any


def given(**fields: Any) -> dict[str, Any]:  # noqa: ANN401  fields of a JSON body
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None and value != []}
