"""Policies from a user's own module: what is wrong with one is told in a line that names it."""

import asyncio
from dataclasses import dataclass, field, make_dataclass

import pytest

from headway.core import Preemption, PreemptMethod, SamplingParams, StepPlan, TokenEmitted
from headway.engine import AsyncLLM
from headway.errors import BadSetting, ExecutorFault, PolicyFault
from headway.kv import KVCache, make_prefix_cache
from headway.sched import Axes, PlanLimits, Policy, Scheduler
from headway.sched.policies.sarathi import Sarathi, SarathiParams
from headway.sched.registry import policy_class
from headway.sim import parse_scene, run_scene
from tests.support.engines import Gate, simulated_engine


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


class Clumsy(Sarathi):
    """Raises in its third step, a call below `plan`."""

    def plan(self, view):
        return self._stumble(view) if view.step == 2 else super().plan(view)

    def _stumble(self, view):
        view.ledger.give_back(None)


class Deaf(Sarathi):
    """Raises when it hears of a token."""

    def on_event(self, event):
        if type(event) is TokenEmitted:
            raise KeyError("no tokens")


class Stubborn(Sarathi):
    """Raises at whatever it hears."""

    def on_event(self, event):
        raise RuntimeError("go away")


HOOKS = ("__init__", "limits", "in_flight", "reorders", "plan", "on_event", "let_go", "units")


def _breaking(hook, answer):
    """A policy one of whose hooks gives another answer than Sarathi, under the name of this module."""
    kind = type("Odd", (Sarathi,), {hook: answer, "__module__": __name__})
    globals()["Odd"] = kind
    return f"{__name__}:Odd"


def _run(name, settings=None):
    requests = [{"id": "A", "prompt": 6, "output": 4}, {"id": "B", "prompt": 2, "output": 2}]
    return run_scene(parse_scene({"block_size": 4, "num_blocks": 8, "requests": requests}), name, settings)


@pytest.mark.parametrize("is_base", [False, True], ids=["alone", "as a base"])
@pytest.mark.parametrize("hook", HOOKS)
def test_whichever_hook_raises_the_policy_and_the_line_are_told(hook, is_base):
    """Nothing that a policy is asked shows a traceback; alone or under another policy."""

    def stumble(self, *args):
        raise LookupError("boom")

    name = _breaking(hook, stumble)
    said = r"raised (in step \d+|outside a step): LookupError: boom \(test_own_policies.py, line \d+, in stumble\)$"
    with pytest.raises(PolicyFault, match=said):
        _run("vtc", {"base": name}) if is_base else _run(name)


@pytest.mark.parametrize(
    ("hook", "answer", "said"),
    [
        ("limits", None, r"limits\(\) returned None, not PlanLimits"),
        ("limits", PlanLimits(max_tokens="8"), r"max_tokens '8'; it must be a whole number or None"),
        ("in_flight", 0, r"in_flight\(\) returned 0; it must be a whole number, 1 or more"),
        ("units", 0, r"units\(\) returned 0; it must be a number above 0"),
        ("units", float("nan"), r"units\(\) returned nan; it must be a number above 0"),
        ("let_go", None, r"let_go\(\) returned None, not a list of sequences"),
        ("let_go", ["B"], r"let_go\(\) released 'B', which had not ended"),
        ("let_go", [], r"let_go\(\) never released [AB], [AB], which had ended"),
    ],
)
def test_a_wrong_answer_is_told_with_what_it_should_have_been(hook, answer, said):
    """By the name of the method; the clock and the queues never see it."""
    with pytest.raises(PolicyFault, match=f"Odd' gave a wrong answer: .*{said}"):
        _run(_breaking(hook, lambda self, *args: answer))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda plan: plan.grants.append(None), "cannot be read in step 0: AttributeError: 'NoneType'"),
        (lambda plan: plan.rejected.append(None), "cannot be read in step 0: TypeError"),
        (
            lambda plan: plan.rejected.append(("A", 3)),
            "rejected has 'A' with 3; it must hold a sequence and why, in words",
        ),
        (lambda plan: setattr(plan.grants[0], "num_tokens", 1.5), r"1\.5 tokens granted; .* whole numbers"),
    ],
    ids=["grant", "rejected", "reason", "half a token"],
)
def test_a_plan_of_odd_things_is_refused_before_anything_happens(spoil, said):
    """Its step is stopped in one line, as with a plan that breaks the limits."""

    def spoilt(self, view):
        plan = Sarathi.plan(self, view)
        spoil(plan)
        return plan

    with pytest.raises(PolicyFault, match=said):
        _run(_breaking("plan", spoilt))


@pytest.mark.parametrize("is_granted", [False, True], ids=["leaves", "comes back"])
@pytest.mark.parametrize(("method", "keep_tokens"), [*((method, 0) for method in PreemptMethod), ("partial", -1)])
def test_whoever_is_preempted_gives_its_blocks_back(method, keep_tokens, is_granted):
    """Else what the ledger says would not be what the cache has once the plan is carried out."""

    def forgetful(self, view):
        plan = Sarathi.plan(self, view)
        if view.step == 1:
            plan.grants = plan.grants if is_granted else []
            kind = PreemptMethod(method)
            plan.preemptions += [Preemption(seq, kind, keep_tokens=keep_tokens) for seq in view.running]
        return plan

    with pytest.raises(PolicyFault, match="A is preempted without giving its blocks back to the ledger"):
        _run(_breaking("plan", forgetful))


def test_a_plan_that_no_check_foresaw_names_the_policy_too():
    """As one that swaps out whom it goes on with: whoever wrote it is told, and not that we were wrong."""

    def torn(self, view):
        plan = Sarathi.plan(self, view)
        for entry in (entry for entry in plan.grants if entry.seq in view.running):
            view.ledger.give_back(entry.seq)
            view.ledger.take(entry.seq, entry.num_tokens)
            plan.preemptions.append(Preemption(entry.seq, PreemptMethod.SWAP))
        return plan

    with pytest.raises(PolicyFault, match=r"Odd' made a plan that cannot be carried out in step 1: KeyError: 'A'"):
        _run(_breaking("plan", torn))


@dataclass(frozen=True)
class Needy:
    """One parameter without a default."""

    size: int


@dataclass(frozen=True)
class Listing:
    """One parameter that no text can give."""

    sizes: list[int] = field(default_factory=list)


Misspelt = make_dataclass("Misspelt", [("size", "integer", 3)], namespace={"__module__": __name__}, frozen=True)
"""A type that does not exist."""


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("Params", dict, "Params that are no dataclass"),
        ("Params", Needy, "parameter 'size' of policy .* has no default; give it one"),
        ("Params", Listing, r"parameter 'sizes' .* has type list\[int\]; it must be bool, int, float, str"),
        ("Params", Misspelt, "types cannot be read: name 'integer' is not defined"),
        ("axes", "none", "axes 'none'; they must be headway.sched.Axes"),
    ],
)
def test_parts_of_the_wrong_kind_are_told_when_it_is_named(part, value, said):
    """`headway policies` shows them, `--set` fills them."""
    with pytest.raises(BadSetting, match=said):
        policy_class(_breaking(part, value))


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


@pytest.mark.parametrize("settings", [{}, {"base": "{}"}], ids=["alone", "as a base"])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Clumsy, r"raised in step 2: AttributeError: .* \(test_own_policies.py, line \d+, in _stumble\)"),
        (Deaf, r"raised in step 0: KeyError: 'no tokens' \(test_own_policies.py, line \d+, in on_event\)"),
    ],
)
def test_one_that_raises_is_told_its_line(policy, message, settings):
    """The policy's name, the step, and the last line in its own file: not the one in ours that it led to."""
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 2, "output": 4}]})
    name = f"{__name__}:{policy.__name__}"
    asked = "vtc" if settings else name
    with pytest.raises(PolicyFault, match=f"^policy {asked!r} {message}$"):
        run_scene(scene, asked, {key: text.format(name) for key, text in settings.items()})


def test_what_our_own_policies_raise_stays_what_it_is(monkeypatch):
    """A mistake of ours needs its traceback."""

    def broken(self, view):
        raise ZeroDivisionError

    monkeypatch.setattr(Sarathi, "plan", broken)
    scene = parse_scene({"block_size": 4, "num_blocks": 4, "requests": [{"id": "A", "prompt": 2, "output": 4}]})
    with pytest.raises(ZeroDivisionError):
        run_scene(scene, "sarathi")


def test_what_cannot_be_adopted_leaves_the_old_policy_in_office():
    """A user's `adopt` that raises is told like the other hooks, and nothing has changed."""

    def stumble(self, old):
        raise LookupError("boom")

    odd = policy_class(_breaking("adopt", stumble))
    scheduler = Scheduler(Sarathi(SarathiParams()), KVCache(4, 4, make_prefix_cache("none", 4)), lambda seq: None)
    with pytest.raises(
        PolicyFault, match=r"^policy 'odd' raised outside a step: LookupError: boom \(.*, in stumble\)$"
    ):
        scheduler.change_policy(odd(SarathiParams()), "odd", 0.0)
    assert type(scheduler.policy) is Sarathi


async def test_live_its_requests_end_with_the_same_words(caplog):
    """The log has the traceback, which whoever wrote the policy needs."""
    name = f"{__name__}:Clumsy"
    said = rf"the engine stopped: policy {name!r} raised in step 2: .*, in _stumble\)"
    async with AsyncLLM(engine=simulated_engine(policy=name)) as llm:
        with pytest.raises(ExecutorFault, match=said):
            _ = [delta async for delta in llm.submit([5, 6, 7], SamplingParams(max_tokens=9, ignore_eos=True))]
    assert "the engine stopped: policy" in caplog.text
    assert "view.ledger.give_back(None)" in caplog.text


async def test_one_that_raises_at_its_start_does_not_come_into_office():
    """The operator is told the line, the requests go on under the policy that they had."""
    gates = []
    engine = simulated_engine(wrap=lambda inner: gates.append(Gate(inner)) or gates[0])
    async with AsyncLLM(engine=engine) as llm:
        stream = llm.submit([5, 6, 7], SamplingParams(max_tokens=9, ignore_eos=True))
        await asyncio.to_thread(gates[0].launched.acquire, timeout=30)
        changing = asyncio.create_task(llm.control.change({"policy": f"{__name__}:Stubborn"}, "a test"))
        for _ in range(3):  # the change is asked for, by a task of its own, and on its way to the engine
            await asyncio.sleep(0)
        gates[0].open_for_good()
        with pytest.raises(PolicyFault, match=r"Stubborn' raised in step \d+: RuntimeError: go away .*, in on_event\)"):
            await changing
        assert sum([len(delta.token_ids) async for delta in stream]) == 9
        assert llm.control.settings()["policy"] == "vllm"
