"""Virtual time: the real engine core with a clock that moves only when told to.

Must not know: HTTP, models, wall clocks. Start reading at `tape` for scenes, at `simulator` for workloads.
"""

from headway.sim.cost import OVERHEADS, CostModel, Overheads, overheads
from headway.sim.disaggregate import decoding, decoding_plan, handed_over
from headway.sim.fitted import Calibration, Fitted, as_document, read_calibration, write_calibration
from headway.sim.hardware import HARDWARE_CARDS, HardwareCard, Link, hardware_card
from headway.sim.load import Load, load_of
from headway.sim.modelcard import MODEL_CARDS, ModelCard, model_card
from headway.sim.parallel import Parallel
from headway.sim.plant import Plan, Plant
from headway.sim.profile import KernelProfile, Profiled, read_profile
from headway.sim.replica import Replica
from headway.sim.roofline import LinearLayer, Roofline, kv_blocks
from headway.sim.router import ROUTERS, Router, make_router
from headway.sim.scene import Scene, SceneRequest, load_scene, parse_scene
from headway.sim.simulator import HandOver, Interrupted, Pool, simulate
from headway.sim.site import Site, calibrated_plant
from headway.sim.tape import as_json, picture, run_scene, tape_params
from headway.sim.trace import ChromeTrace, StepLog

__all__ = [
    "HARDWARE_CARDS",
    "MODEL_CARDS",
    "OVERHEADS",
    "ROUTERS",
    "Calibration",
    "ChromeTrace",
    "CostModel",
    "Fitted",
    "HandOver",
    "HardwareCard",
    "Interrupted",
    "KernelProfile",
    "LinearLayer",
    "Link",
    "Load",
    "ModelCard",
    "Overheads",
    "Parallel",
    "Plan",
    "Plant",
    "Pool",
    "Profiled",
    "Replica",
    "Roofline",
    "Router",
    "Scene",
    "SceneRequest",
    "Site",
    "StepLog",
    "as_document",
    "as_json",
    "calibrated_plant",
    "decoding",
    "decoding_plan",
    "handed_over",
    "hardware_card",
    "kv_blocks",
    "load_of",
    "load_scene",
    "make_router",
    "model_card",
    "overheads",
    "parse_scene",
    "picture",
    "read_calibration",
    "read_profile",
    "run_scene",
    "simulate",
    "tape_params",
    "write_calibration",
]
