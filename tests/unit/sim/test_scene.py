"""Scene files: what no run could work with is refused in one line that names the field."""

import pytest

from headway.errors import BadSetting
from headway.sim import load_scene, parse_scene

SCENE = '{"block_size": 4, "num_blocks": 8, "requests": [{"id": %s, "prompt": %s, "output": 2, "arrival": %s}]}'


@pytest.mark.parametrize(
    ("name", "prompt", "arrival", "message"),
    [
        ('"a"', "4", "1" + "0" * 400, "arrival is"),  # beyond a double
        ('"a"', "4", "1e300", "arrival is"),  # a unit of time would not move this clock
        ('"a"', "4", "NaN", "arrival is"),
        ('"a"', "9" * 5000, "0", "holds a value that cannot be read"),  # more digits than Python reads
        ('"\\ud800"', "4", "0", "id is '.ud800'; it must be a text"),  # nothing can print it
        ('"a\\nb"', "4", "0", "it must be a text of printable characters"),  # would break the picture
        ("null", "4", "0", "id must be a text of at least one character"),
    ],
)
def test_absurd_values_are_refused(tmp_path, name, prompt, arrival, message):
    """Numbers beyond all bounds and half a character raise `BadSetting`, not an error of Python's."""
    path = tmp_path / "scene.json"
    path.write_text(SCENE % (name, prompt, arrival))
    with pytest.raises(BadSetting, match=message):
        load_scene(path)


def _scene(*requests):
    entries = [{"id": "A", "arrival": 0, "prompt": 6, "output": 3, **request} for request in requests]
    return {"block_size": 4, "num_blocks": 8, "requests": entries}


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([{"n": 2}, {"id": "A/1"}], "'A/1' is the name of a choice of 'A'"),  # two sequences of one name
        ([{}, {}], "'A' is used more than once"),
        ([{"tenant": True}], "tenant is True; it must be a text"),
        ([{"prefix": {"group": 3, "tokens": 2}}], "group is 3; it must be a text"),
        ([{"prefix": {"tokens": 2}}], "names no group"),
    ],
)
def test_names_are_texts_and_tell_sequences_apart(requests, message):
    """Tenants and groups are never guessed from other types, and no two sequences of a scene share a name."""
    with pytest.raises(BadSetting, match=message):
        parse_scene(_scene(*requests))


def test_what_is_null_is_left_out():
    """A tenant of null is no tenant, as with every other field that may be left out."""
    assert parse_scene(_scene({"tenant": None, "n": 2}, {"id": "A/2"})).requests[0].tenant == ""


def test_a_field_that_is_not_there_is_called_missing():
    """Not None, which nobody wrote."""
    scene = _scene({})
    del scene["requests"][0]["prompt"]
    with pytest.raises(BadSetting, match="'A': prompt is missing; it must be a whole number between 1 and"):
        parse_scene(scene)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    """Editors of one system put it before every text."""
    path = tmp_path / "scene.json"
    path.write_text(SCENE % ('"a"', "4", "0"), encoding="utf-8-sig")
    assert load_scene(path).requests[0].id == "a"
