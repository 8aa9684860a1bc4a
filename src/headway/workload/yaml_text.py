"""YAML as people read it: a plain word is a word, and `1:30` is no number."""

from __future__ import annotations

import re

import yaml

from headway.core import DoubledKey

_TAG = "tag:yaml.org,2002:"
_OCTAL = re.compile(r"[-+]?0[0-9_]+")


def read_yaml(text: str) -> object:
    """Plain YAML. What `<<` merges into a mapping may be said there again. Raises `yaml.YAMLError`.

    A key that stands twice in a mapping is such an error: only one of its values would count. `1:30`, `017`, `no` and
    `2024-01-01` are texts, where PyYAML, after YAML 1.1, reads 90, 15, false and a date: a field that is a number
    refuses them.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen or node is None:
            continue
        seen.add(id(node))  # an alias may hold itself
        if isinstance(node, yaml.ScalarNode):
            _take_as_written(node)
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value
        else:
            _check_once(node)
            pending += [part for entry in node.value for part in entry]
    return None if root is None else yaml.SafeLoader("").construct_document(root)


def _check_once(mapping: yaml.MappingNode) -> None:
    keys: set[tuple[str, str]] = set()
    for key, _ in mapping.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        _take_as_written(key)
        if (key.tag, key.value) in keys:
            raise yaml.MarkedYAMLError(problem=str(DoubledKey(key.value)), problem_mark=key.start_mark)
        keys.add((key.tag, key.value))


def _take_as_written(scalar: yaml.ScalarNode) -> None:
    """Make a text of it where YAML 1.1 sees something else in it than its reader."""
    value, kind = scalar.value, scalar.tag.removeprefix(_TAG)
    is_number = kind in ("int", "float") and ":" not in value and not _OCTAL.fullmatch(value)
    is_truth = kind == "bool" and value.lower() in ("true", "false")
    if kind in ("int", "float", "bool", "timestamp", "value") and not (is_number or is_truth):
        scalar.tag = f"{_TAG}str"
