"""Policies from a user's own module: what is wrong with one is told in a line that names it."""

import pytest

from headway.core import StepPlan
from headway.errors import BadSetting, PolicyFault
from headway.sched import Axes, Policy
from headway.sched.policies.sarathi import SarathiParams
from headway.sched.registry import policy_class
from headway.sim import parse_scene, run_scene


class Unfinished(Policy):
    """Has no `Params`, `axes` and `source` yet."""


class Forgetful(Policy):
    """Plans, and does not say what."""

    Params = SarathiParams
    axes = Axes(order="none", sharing="none", reservation="none", shortage="none")
    source = "here"

    def __init__(self, params):
        del params

    def plan(self, view):
        del view
        StepPlan()


@pytest.mark.parametrize(
    ("text", "message"),
    [("def x(:", "SyntaxError: invalid syntax"), ("raise RuntimeError('boom')", "RuntimeError: boom")],
)
def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch, text, message):
    """Whatever its import raises becomes a `BadSetting`."""
    (tmp_path / "broken_policy_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadSetting, match=f"'broken_policy_module:X' cannot be loaded: {message}"):
        policy_class("broken_policy_module:X")


def test_a_path_is_no_module():
    """Python would take two dots for a relative import."""
    with pytest.raises(BadSetting, match="cannot be loaded"):
        policy_class("../mine:X")


def test_a_policy_without_its_parts_is_told_which():
    """Before anything asks for them."""
    with pytest.raises(BadSetting, match="has no Params, axes, source"):
        policy_class(f"{__name__}:Unfinished")


def test_a_plan_that_was_not_returned_names_the_policy():
    """The commonest mistake of all: no `return plan`."""
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 2, "output": 2}]})
    with pytest.raises(PolicyFault, match=r"Forgetful.*returned None"):
        run_scene(scene, f"{__name__}:Forgetful")
