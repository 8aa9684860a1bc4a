"""Nothing that Python hands to the compiled module can end the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.native

ROOT = Path(__file__).parents[2]


def fuzz(seed, num_calls):
    """The fuzzer in a process of its own, which sees the package that this one sees."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    command = [sys.executable, "-m", "tests.support.fuzz_native", str(seed), str(num_calls)]
    environment = os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.parametrize(
    ("seed", "num_calls"), [(1, 400), *(pytest.param(seed, 20_000, marks=pytest.mark.slow) for seed in range(2, 6))]
)
def test_nonsense_is_an_exception(seed, num_calls):
    """Wrong types, shapes, ids, sizes and objects are refused, and a sound step computes the same bits afterwards."""
    run = fuzz(seed, num_calls)
    assert run.returncode == 0, (run.returncode, run.stderr[-500:])
    assert "refused" in run.stdout


def test_memory_that_cannot_be_had_is_an_error():
    """A step too big for the memory that is left raises MemoryError, and the next one computes the same bits."""
    program = """
import resource
import numpy as np
from headway.kernels.native import StepArrays
from headway.models import random_weights
from tests.support.native_models import native_model
from tests.support.tiny_model import tiny_config

model = native_model(random_weights(tiny_config(hidden_size=512), seed=2), form="int8", num_threads=2)
cache = model.new_cache(dtype="int8", block_size=16, num_blocks=4)

def step(num_rows):
    def ints(*values):
        return np.array(values, np.int32)

    # Rows behind the lane's five need memory and no attention.
    arrays = StepArrays(
        token_ids_T=np.ones(num_rows, np.int32),
        cu_seqlens_S1=ints(0, 5),
        contexts_S=ints(5),
        block_tables_SB=ints([0]),
        needed_rows_N=ints(4),
    )
    return model.run(cache, arrays, num_logits=1).logits_RV.tobytes()

before = step(5)
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for spare in range(4 << 20, 200 << 20, 20 << 20):
    resource.setrlimit(resource.RLIMIT_AS, (pages + spare, resource.RLIM_INFINITY))
    try:
        step(65536)
        print("done with", spare)
        break
    except MemoryError:
        print("refused")
    assert step(5) == before
"""
    path = os.pathsep.join([str(ROOT), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, (run.returncode, run.stderr[-800:])
    assert "refused" in run.stdout
