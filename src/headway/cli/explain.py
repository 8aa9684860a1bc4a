"""`headway explain`: what happened to a request, and why it waited."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.admin import DEFAULT_URL, AdminKey
from headway.cli.flags import Json, Url
from headway.cli.output import print_json

WORDS = {
    "tokens": "the step's token budget was used up",
    "sequences": "as many sequences ran as may",
    "kv": "the KV cache was full",
    "tenant_share": "it was another tenant's turn",
    "class": "more urgent requests went first",
    "prefix_wait": "its prefix was being computed for another request",
    "guardrail": "a promise to others was broken, and it is long or batch work",
    "policy": "the policy admitted nobody",
    "step_end": "the step under way had to end",
}


def explain(
    name: Annotated[str, typer.Argument(metavar="ID", help="Its X-Request-Id, or the id of its answer.")],
    *,
    url: Url = DEFAULT_URL,
    api_key: AdminKey = None,
    as_json: Json = False,
) -> None:
    """Tell what happened to a living or recent request, and what it waited for."""
    from headway.cli.client import Client

    with Client(url, api_key) as client:
        answer = client.manage("GET", f"requests/{name}")
    if as_json:
        print_json(answer)
        return
    for story in answer["requests"]:
        print("\n".join(lines_of(story)))


def lines_of(story: dict[str, Any]) -> list[str]:
    """A story in words, one line per fact."""
    whose = f"tenant {story['tenant'] or '(open)'}, tier {story['tier']}, priority {story['priority']}"
    end = story["finish_reason"] or story["refusal"]
    lines = [
        f"{story['id']}: {story['state']}{f' ({end})' if end else ''}; {whose}",
        f"  {story['num_prompt']} prompt tokens ({story['num_cached']} cached), {story['num_output']} output tokens",
    ]
    for move in story["time_line"]:
        more = ", ".join(f"{key} {value}" for key, value in move.items() if key not in ("at_s", "what"))
        lines.append(f"  {move['at_s']:>9.3f} s  {move['what']}{f' ({more})' if more else ''}")
    waited = story["waited_s"]
    lines.append(f"  waited {sum(waited.values()):.3f} s" + (":" if waited else ""))
    lines += [f"  {seconds:>9.3f} s  {WORDS.get(reason, reason)}" for reason, seconds in waited.items()]
    for what, turned in story["predictions"].items():
        actual = "not yet" if turned["actual"] is None else f"{turned['actual']:.3f}"
        lines.append(f"  predicted {what} {turned['predicted']:.3f}, actual {actual}")
    return lines
