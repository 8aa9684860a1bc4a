"""Texts of the command line to values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import typer

from headway.errors import BadSetting

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def parse_memory(text: str) -> int:
    """Bytes from `512MiB`, `1GiB`, `1G`, `2GB`, `1.5g` or a plain number.

    An `i` or a lone capital counts in powers of 1024, a small letter or a `B` without `i` in powers of 1000.
    """
    match = _SIZE.fullmatch(text.strip())
    base = _unit(match[2]) if match else None
    if match is None or base is None:
        raise typer.BadParameter(f"{text!r} is no amount of memory; write it like 512MiB, 1GiB, 2GB or 536870912")
    return int(float(match[1]) * base) if "." in match[1] else int(match[1]) * base


def _unit(suffix: str) -> int | None:
    """Bytes in one unit, None for an unknown one."""
    if suffix in ("", "B", "b"):
        return 1
    power = _POWERS.get(suffix[0].lower())
    if power is None or suffix[1:] not in ("", "B", "iB"):
        return None
    is_binary = suffix[1:] == "iB" or (suffix.isupper() and len(suffix) == 1)
    return int((1024 if is_binary else 1000) ** power)


def keys_for_clients(ctx: typer.Context, param: typer.CallbackParam, keys: list[str] | None) -> list[str] | None:
    """The keys of a repeatable flag, as they are. Raises `BadSetting` for a variable of white space alone.

    Without a word in it there is no key, and the server would be open whose keys went wrong in some script.
    """
    source = ctx.get_parameter_source(str(param.name))
    if not keys and source is not None and source.name == "ENVIRONMENT":  # by name: see `blame_file`
        name = str(param.envvar)
        raise BadSetting(f"{name} is white space alone, which is no key; set it to a key, or unset it to need none")
    return keys


def one_key(text: str | None) -> str:
    """The key that a request shows, "" for none. `BadSetting` for several: a server's variable may hold those."""
    if text and not text.strip():
        raise BadSetting("--api-key, or its environment variable, is white space and no key; give one, or leave it out")
    if text and (any(letter.isspace() for letter in text) or "," in text):
        raise BadSetting("--api-key, or its environment variable, holds several keys; give the one to be shown")
    return text or ""


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """`key=value` texts of `--set` as a dict. Raises `BadSetting` for one without `=`, or a key given twice."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise BadSetting(f"--set {text!r} is not of the form key=value")
        if key in settings:
            raise BadSetting(f"--set gives {key} twice")
        settings[key] = value.strip()
    return settings


def parse_origins(texts: Iterable[str]) -> tuple[str, ...]:
    """Origins, each text one origin or a JSON list of them. Raises `BadSetting` for a list that is none."""
    origins: list[str] = []
    for text in texts:
        if not text.startswith("["):
            origins.append(text)
            continue
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadSetting(f"--allowed-origins {text!r} is not a JSON list: {error}") from None
        if not all(isinstance(origin, str) for origin in listed):
            raise BadSetting(f"--allowed-origins {text!r} must list texts only")
        origins += listed
    return tuple(origins)
