"""Texts of the command line to values."""

import pytest
import typer

from headway.cli.values import parse_memory, parse_origins, parse_settings
from headway.errors import BadSetting


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0", 0),
        ("1234", 1234),
        ("512MiB", 512 << 20),
        ("1GiB", 1 << 30),
        ("1G", 1 << 30),
        ("2K", 2048),
        ("1.5G", 3 << 29),
        ("1g", 10**9),
        ("2GB", 2 * 10**9),
        ("3MB", 3 * 10**6),
        ("64 MiB", 64 << 20),
        ("100B", 100),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_memory(text, num_bytes):
    """Binary where the unit says so or is a lone capital, else decimal; whole numbers stay exact."""
    assert parse_memory(text) == num_bytes


@pytest.mark.parametrize("text", ["", "G", "-1", "1e9", "1X", "1GiBs", "1gib2", "1,5G", "nan"])
def test_no_memory(text):
    """Anything else is refused with examples."""
    with pytest.raises(typer.BadParameter, match="1GiB"):
        parse_memory(text)


def test_settings():
    """Keys may be spelled like flags; the value is all behind the first sign of equality."""
    assert parse_settings(["a=1", "long-name = x=y", "e="]) == {"a": "1", "long_name": "x=y", "e": ""}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a=1", "a=2"]])
def test_bad_settings(texts):
    """No key, no value, or twice: refused."""
    with pytest.raises(BadSetting, match="--set"):
        parse_settings(texts)


def test_origins():
    """Origins come one by one or as a JSON list, as in vLLM."""
    assert parse_origins(["*", '["http://a", "http://b"]']) == ("*", "http://a", "http://b")
    with pytest.raises(BadSetting):
        parse_origins(["[1]"])
