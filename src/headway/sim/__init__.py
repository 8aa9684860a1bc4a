"""Virtual time: the real engine core with a clock that moves only when told to.

Must not know: HTTP, models, wall clocks. Start reading at `tape`.
"""

from headway.sim.scene import Scene, SceneRequest, load_scene, parse_scene
from headway.sim.tape import as_json, picture, run_scene, tape_params

__all__ = ["Scene", "SceneRequest", "as_json", "load_scene", "parse_scene", "picture", "run_scene", "tape_params"]
