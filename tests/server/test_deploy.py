"""The dashboard and the alert rules name metrics, labels and label values that a server really has."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
NAME = re.compile(r"headway:(\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def dashboard_expressions():
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def alert_rules():
    rules = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text(encoding="utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


EXPRESSIONS = [*dashboard_expressions(), *(rule["expr"] for rule in alert_rules())]


@pytest.fixture
async def known(engine, client):
    """Sample name to label to values, after some traffic."""
    engine.permits = None
    assert (await client.post("/v1/completions", json={"prompt": "Hi"})).status_code == 200
    page = (await client.get("/metrics")).text
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


async def test_every_name_and_label_is_real(known):
    """Nobody finds an empty panel, or an alert that never comes."""
    assert len(EXPRESSIONS) > 40
    for expression in EXPRESSIONS:
        names = NAME.findall(expression)
        for name, matchers in names:
            assert f"headway:{name}" in known, f"no metric headway:{name}: {expression}"
            for label, operator, value in MATCHER.findall(matchers):
                values = known[f"headway:{name}"].get(label)
                assert values is not None, f"headway:{name} has no label {label}: {expression}"
                wanted = set(value.split("|")) if "~" in operator else {value}
                assert wanted <= values, f"headway:{name}: {label} is never {wanted - values}"
        for group in re.findall(r"by \(([^)]*)\)", expression):
            for label in re.split(r",\s*", group):
                assert all(label in known[f"headway:{name}"] for name, _ in names), f"no label {label}: {expression}"


async def test_every_metric_has_a_panel(known):
    """What a server tells can be seen, but for settings and what is told twice."""
    shown = {re.sub(r"_(bucket|total|count|sum)$", "", name) for text in EXPRESSIONS for name, _ in NAME.findall(text)}
    told = {re.sub(r"_(bucket|total|count|sum|created)$", "", name) for name in known if name.startswith("headway:")}
    left_out = {
        "cache_config_info",
        "kv_cache_usage_perc",
        "live_view_cpu_seconds",
        "num_preemptions",
        "prefix_cache_recovered",
        "request_inference_time_seconds",
        "request_time_per_output_token_seconds",
        "token_ledger_open",
    }
    sizes = {name for name in told if "_params_" in name or name.endswith("_tokens")}
    assert {name.removeprefix("headway:") for name in told - sizes} - shown - left_out == set()


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_a_rule_says_what_is_wrong_and_how_bad(rule):
    """Every alert has a severity, a summary and a time to settle."""
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert rule["for"]
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_panels_do_not_overlap():
    """Each has an id and a place of its own."""
    panels = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    taken = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken)
