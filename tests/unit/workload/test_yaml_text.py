"""What YAML files are read as."""

import pytest
import yaml

from headway.workload.yaml_text import read_yaml


@pytest.mark.parametrize(
    "word", ["1:30", "12:30:45", "1:30.5", "017", "0o17", "no", "NO", "on", "Off", "yes", "2024-01-01", "="]
)
def test_what_only_yaml_1_1_takes_for_something_else_is_a_text(word):
    """As a value, in a list and as a key; PyYAML makes 90, 15, false and a date of some."""
    assert read_yaml(f"a: {word}\nb: [{word}]\n{word}: 1\n") == {"a": word, "b": [word], word: 1}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("90", 90), ("-3", -3), ("0", 0), ("1_000", 1000), ("0.5", 0.5), ("007.5", 7.5), ("1.5e+3", 1500.0)),
        *(
            ("true", True),
            ("False", False),
            ("null", None),
            ("~", None),
            ("", None),
            ("'90'", "90"),
            ("!!str 90", "90"),
        ),
    ],
)
def test_what_looks_like_a_number_or_a_truth_is_one(word, value):
    """Nothing else has changed."""
    found = read_yaml(f"a: {word}\n")["a"]
    assert (found, type(found)) == (value, type(value))


def test_a_key_is_the_same_quoted_or_not():
    """Of `no` and `'no'` only one would count."""
    with pytest.raises(yaml.YAMLError, match="the key 'no' is there twice"):
        read_yaml("no: 1\n'no': 2\n")


def test_an_alias_may_hold_itself():
    """It is read once."""
    found = read_yaml("a: &a [1:30, *a]\n")["a"]
    assert found[0] == "1:30"
    assert found[1] is found


def test_nothing_is_nothing():
    """An empty file, or one of comments."""
    assert read_yaml("# nothing\n") is None
