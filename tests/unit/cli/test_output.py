"""What commands print."""

import json
import math

from headway.cli.output import print_json


def test_what_is_no_number_is_null(capsys):
    """Half the parsers of this world refuse NaN, which a run without a single answer is full of."""
    print_json(
        {"ttft_ms": math.nan, "runs": [(1.5, math.inf), {"speed": -math.inf}], "text": "é", "num": 3, "ok": True}
    )
    text = capsys.readouterr().out

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert json.loads(text, parse_constant=refuse) == {
        "ttft_ms": None,
        "runs": [[1.5, None], {"speed": None}],
        "text": "é",
        "num": 3,
        "ok": True,
    }
    assert "é" in text
