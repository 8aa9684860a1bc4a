"""Scene files: what no run could work with is refused in one line that names the field."""

import pytest

from headway.errors import BadSetting
from headway.sim import load_scene

SCENE = '{"block_size": 4, "num_blocks": 8, "requests": [{"id": %s, "prompt": %s, "output": 2, "arrival": %s}]}'


@pytest.mark.parametrize(
    ("name", "prompt", "arrival", "message"),
    [
        ('"a"', "4", "1" + "0" * 400, "arrival is"),  # beyond a double
        ('"a"', "4", "1e300", "arrival is"),  # a unit of time would not move this clock
        ('"a"', "4", "NaN", "arrival is"),
        ('"a"', "9" * 5000, "0", "holds a value that cannot be read"),  # more digits than Python reads
        ('"\\ud800"', "4", "0", "id must be a text"),  # nothing can print it
    ],
)
def test_absurd_values_are_refused(tmp_path, name, prompt, arrival, message):
    """Numbers beyond all bounds and half a character raise `BadSetting`, not an error of Python's."""
    path = tmp_path / "scene.json"
    path.write_text(SCENE % (name, prompt, arrival))
    with pytest.raises(BadSetting, match=message):
        load_scene(path)
