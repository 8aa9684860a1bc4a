"""Step times of a real engine: measured over designed batches and a live run, fitted, and kept.

Must not know: commands, files of workloads. Start reading at `calibrate`, then `design`, `probing`, `live`, `fit`.
"""

from headway.sim.calibration.calibrate import Effort, calibrate
from headway.sim.calibration.fit import Fit, Observation, fit_steps, quantile
from headway.sim.calibration.live import StepListener
from headway.sim.calibration.probing import Progress

__all__ = ["Effort", "Fit", "Observation", "Progress", "StepListener", "calibrate", "fit_steps", "quantile"]
