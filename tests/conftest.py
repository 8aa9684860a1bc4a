"""What all tests share: hypothesis profiles, the shared data, the default model, the check for an installed package."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import headway
from headway.errors import BadModelFile
from tests.support.certificates import read_once
from tests.support.nursery import Nursery

ROOT = Path(__file__).parent.parent

NURSERY = pytest.StashKey[Nursery]()

gc.set_threshold(100_000, 50, 50)  # while everything is imported and collected, hardly anything can be freed

# ci: the same examples on every machine and run. full: fresh ones, many, for `make test-full`.
settings.register_profile(
    "ci", max_examples=10, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("full", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


def pytest_addoption(parser):
    parser.addoption("--installed", action="store_true", help="fail unless `headway` is the installed, built package")


def pytest_report_header():
    return f"headway {headway.__version__} from {Path(headway.__file__).parent}"


def pytest_sessionstart(session):
    home = Path(headway.__file__).resolve()
    if session.config.getoption("--installed") and home.is_relative_to(ROOT / "src"):
        pytest.exit(f"--installed: headway comes from {home.parent}; run `make test`, which installs it", returncode=4)


def pytest_collection_finish(session):
    """What was imported and collected stays to the end: the garbage collector need not look at it again and again."""
    read_once()
    if "PYTEST_XDIST_WORKER" in os.environ and any("nursery" in item.fixturenames for item in session.items):
        session.config.stash[NURSERY] = Nursery()  # what it imports is there when the first child is wanted
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def skip_or_fail(reason):
    """Skip; in CI, where nothing may be missing unnoticed, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data():
    """Folder of the data shared between projects; a checkout without it skips the tests that want it."""
    path = Path(os.environ.get("HEADWAY_SHARED", ROOT.parent / "shared")) / "data"
    if not path.is_dir():
        pytest.skip(f"no shared data at {path}; set HEADWAY_SHARED to the folder that holds data/")
    return path


@pytest.fixture(scope="session")
def nursery(pytestconfig):
    """Makes processes that need not import anything any more."""
    if NURSERY not in pytestconfig.stash:
        pytestconfig.stash[NURSERY] = Nursery()
    return pytestconfig.stash[NURSERY]


def pytest_sessionfinish(session):
    if (nursery := session.config.stash.get(NURSERY, None)) is not None:
        nursery.close()


@pytest.fixture(scope="session")
def model_path():
    """Path of the default model, fetched on first use; without it tests are skipped, in CI they fail."""
    from headway.models.catalogue import resolve_model  # NumPy and more: workers begin sooner without it

    try:
        return resolve_model()
    except BadModelFile as error:
        skip_or_fail(f"the default model cannot be had: {error}")
