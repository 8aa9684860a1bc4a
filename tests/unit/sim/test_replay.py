"""A decision log is decided again with the same outcome, step by step, and a change is found."""

import json
import random

import pytest

from headway.cli.main import main
from headway.errors import BadSetting
from headway.obs.decision_log import DecisionLog
from headway.obs.rotating import RotatingFile
from headway.sim import Overheads, Parallel, Plan, Plant, Pool, Roofline, hardware_card, model_card, simulate
from headway.sim.replay import replay
from headway.workload import WorkItem

BLOCKS = 60
POLICIES = ("vllm", "headway", "sarathi_serve", "orca", "static", "fastserve", "vllm_v0", "sglang", "vtc")


def items():
    rng = random.Random(1)
    made, at_s = [], 0.0
    for number in range(40):
        at_s += rng.expovariate(40.0)
        num_output = rng.randint(1, 40)
        made.append(
            WorkItem(
                id=f"r{number}",
                num_prompt=rng.randint(5, 120),
                num_output=num_output,
                max_output=num_output + rng.randint(0, 20),
                at_s=at_s,
                tenant=f"t{number % 3}",
                prefix=(number % 2,),
                prefix_block=32,
                cancel_s=0.05 if number % 9 == 4 else None,
            )
        )
    return made


def record(path, policy, max_bytes=1 << 20):
    """A run of the simulator, which drives the same core as the server."""
    cost = Roofline(model_card("Llama-3-8B"), hardware_card("H100"), Parallel(), Overheads(step_s=1e-3))
    plant = Plant(cost=cost, num_blocks=BLOCKS)
    logs = []

    def observe(_name):
        engine = {
            "policy": policy,
            "settings": {},
            "limits": {"num_slots": BLOCKS * 16},
            "num_blocks": BLOCKS,
            "block_size": 16,
            "num_host_blocks": None,
            "prefix_cache": "hashed",
        }
        logs.append(DecisionLog(RotatingFile(path, max_bytes), engine, block_size=16, max_bytes=max_bytes))
        return logs[-1].on_events

    simulate(items(), Pool(plant=plant, plan=Plan(policy=policy), observers=[observe]))
    for log in logs:
        log.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_is_decided_again(tmp_path, policy):
    """Every grant, preemption and end of every step, with clients that leave in between."""
    path = tmp_path / "log"
    record(path, policy)
    found = replay(path)
    assert found.differences == []
    assert found.num_requests == 40
    assert found.num_steps > 20
    assert found.note == ""


def test_a_changed_decision_is_found(tmp_path):
    """The step and the field are named, with both values."""
    path = tmp_path / "log"
    record(path, "vllm")
    lines = path.read_text().splitlines()
    at = next(k for k, line in enumerate(lines) if '"step"' in line and json.loads(line).get("grants"))
    entry = json.loads(lines[at])
    name = next(iter(entry["grants"]))
    entry["grants"][name] += 1
    lines[at] = json.dumps(entry)
    path.write_text("\n".join(lines) + "\n")
    [one] = replay(path).differences
    assert one.field == "grants"
    assert one.recorded[name] == one.replayed[name] + 1


def test_another_policy_decides_otherwise(tmp_path):
    """The comparison is not blind: under another policy the steps differ."""
    path = tmp_path / "log"
    record(path, "vllm")
    path.write_text(path.read_text().replace('"policy":"vllm"', '"policy":"static"', 1))
    assert replay(path).differences


def test_the_command_says_what_a_log_does_not_hold(tmp_path, capsys):
    """Where steps differ, that changes made by an administrator are not in the file; else nothing of it."""
    path = tmp_path / "log"
    record(path, "vllm")
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.endswith("all the same\n")
    path.write_text(path.read_text().replace('"policy":"vllm"', '"policy":"static"', 1))
    assert main(["replay", str(path)]) == 1
    assert "`headway admin set`" in capsys.readouterr().out.splitlines()[-1]


def test_a_log_with_a_gap_is_followed_up_to_it(tmp_path):
    """What a full disk swallowed is noticed."""
    path = tmp_path / "log"
    record(path, "vllm")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:30] + lines[31:]))
    found = replay(path)
    assert found.differences == []
    assert "missing after line 30" in found.note


def test_a_log_ends_at_its_size(tmp_path):
    """What is there can be replayed."""
    path = tmp_path / "log"
    record(path, "vllm", max_bytes=10_000)
    assert path.stat().st_size <= 10_000
    assert replay(path).differences == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "first line does not describe an engine"),
        ("x\n", "line 1: not JSON"),
        ("[1]\n", "line 1: not a line of a decision log"),
        ('{"n":0,"kind":"engine","version":9}\n', "has version 9"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, text, message):
    """One message with the line."""
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(BadSetting, match=message):
        replay(path)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("engine", {"num_blocks": "many"}, "line 1: num_blocks is 'many'; it must be a whole number from 1 to"),
        ("engine", {"block_size": 1e308}, "block_size is 1e"),
        ("engine", {"policy": {}}, "policy is {}; it must be a text"),
        ("engine", {"limits": None}, "limits is None; it must be an object of numbers"),
        ("arrived", {"num_prompt": 10**30}, r"line \d+: num_prompt is 1000"),
        ("arrived", {"prefix": [1, "x"]}, "prefix is .* a list of whole numbers"),
        ("arrived", {"tier": 7}, "tier is 7; it must be one of"),
        ("arrived", {"at_s": float("nan")}, "at_s is nan"),
        ("step", {"start_s": "now"}, "start_s is 'now'"),
        ("step", {"grants": {"r0": -1}}, "grants is .* an object of numbers of tokens"),
        ("ended", {"reason": "boredom"}, "reason is 'boredom'; it must be one of"),
        ("step", {"kind": "stop"}, "kind is 'stop'; known: engine, arrived, step"),
        ("step", {"finished": ...}, "finished is missing; it must be a list of ids"),
    ],
)
def test_a_damaged_line_is_refused(log, tmp_path, kind, changes, message):
    """A field that is missing or cannot be is named with its line; nothing stumbles over it later."""
    lines = [json.loads(line) for line in log.splitlines()]
    line = next(line for line in lines if line["kind"] == kind)
    for name, value in changes.items():
        if value is ...:
            del line[name]
        else:
            line[name] = value
    path = tmp_path / "log"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BadSetting, match=message):
        replay(path)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "log"
    record(path, "vllm")
    return path.read_text()
