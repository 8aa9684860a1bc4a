"""Finished runs in a file."""

import json
from dataclasses import fields, replace

import pytest

from headway.bench.contest import Base, Heat
from headway.bench.logbook import Logbook
from headway.bench.maker import Maker
from headway.bench.score import Score
from headway.errors import BadSetting

ABOUT = {"model": "m", "timeout_s": 600.0, "settings": {"vllm": {"a": "1"}}}
SCORE = Score(**{field.name: number for number, field in enumerate(fields(Score), start=1)})


def heat(policy, repeat=0):
    return Heat(policy=policy, factor=1.2, repeat=repeat)


@pytest.fixture
def path(tmp_path):
    """A log of a base rate and two runs."""
    log = Logbook(tmp_path / "runs.jsonl", ABOUT)
    log.set_base(Base(rate=2.0, glance_s=0.02))
    log.add(heat("vllm"), SCORE)
    log.add(heat("orca", 1), replace(SCORE, speed=0.5))
    return tmp_path / "runs.jsonl"


def test_what_was_kept_is_found_again(path):
    """The base, and each run under its own policy, rate and round."""
    log = Logbook(path, ABOUT)
    assert log.base == Base(rate=2.0, glance_s=0.02)
    assert log.find(heat("vllm")) == SCORE
    assert log.find(heat("orca", 1)).speed == 0.5
    assert log.find(heat("orca")) is None


@pytest.mark.parametrize("num_lost", [1, 2, 40])
def test_half_a_line_costs_its_run_and_nothing_else(path, num_lost):
    """Whoever was killed, or out of space, while it wrote: the next line begins where that one did."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-num_lost])
    log = Logbook(path, ABOUT)
    assert log.find(heat("vllm")) == SCORE
    assert log.find(heat("orca", 1)) is None
    log.add(heat("orca", 1), replace(SCORE, speed=0.5))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"policy": "vllm"}', "no finished run"),
        ('{"base": {"rate": null, "glance_s": 0}}', "no finished run"),
        (
            json.dumps({"policy": "a", "factor": 1, "repeat": 0, "score": dict.fromkeys(SCORE.__slots__, "x")}),
            "no fini",
        ),
        ("[]", "lines are objects; name another file"),
        ("no JSON", "cannot read"),
    ],
)
def test_a_line_that_is_no_run_is_refused_and_stays(path, line, why):
    """Nothing of the file is lost by naming it."""
    path.write_text(path.read_text() + line + "\n" + '{"pol')
    before = path.read_bytes()
    with pytest.raises(BadSetting, match=why):
        Logbook(path, ABOUT)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", ["a letter", "a letter\n", "{}\n", "\n"])
def test_another_file_is_refused_and_stays(tmp_path, content):
    """A path that was mistyped does no harm."""
    path = tmp_path / "letter.txt"
    path.write_text(content)
    with pytest.raises(BadSetting):
        Logbook(path, ABOUT)
    assert path.read_text() == content


def test_another_contest_is_refused_by_what_differs(path):
    """It is named with both values."""
    with pytest.raises(
        BadSetting, match=r"another model, workload or setting: timeout_s is 600\.0 there and 5\.0 here"
    ):
        Logbook(path, ABOUT | {"timeout_s": 5.0})


def test_what_an_older_log_does_not_say_is_not_held_against_it(path):
    """It goes on, as far as it can be told."""
    assert Logbook(path, ABOUT | {"kernels": "avx2"}).find(heat("vllm")) == SCORE


def test_each_run_keeps_who_made_it_and_an_older_log_goes_on(path):
    """Code and processor of the day it was made; unknown for a line that has neither."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line.pop("maker", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    today = Maker(code="1+a", processor="cpu")
    Logbook(path, ABOUT, today).add(heat("headway"), SCORE)
    log = Logbook(path, ABOUT, Maker(code="2+b", processor="cpu"))
    assert [log.maker(heat(policy)) for policy in ("vllm", "headway")] == [Maker(), today]
    assert log.find(heat("vllm")) == log.find(heat("headway")) == SCORE
