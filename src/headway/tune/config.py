"""The settings as a file that `headway serve --config` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from headway.tune.outcome import Outcome


def config_text(outcome: Outcome, engine: Mapping[str, object], notes: list[str]) -> str:
    """TOML: `notes` as remarks, `engine` (what the calibrated engine was built with), the setting, the guards."""
    chosen = outcome.chosen.setting
    lines = [f"# {line}" for note in notes for line in note.splitlines()]
    table = {**engine, **chosen.fields(), **outcome.guards.flags()}
    lines += [f"{key.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    lines += ["", "[policy]", f"name = {json.dumps(chosen.policy)}"]
    return "\n".join(lines) + "\n"
