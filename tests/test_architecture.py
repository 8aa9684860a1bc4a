"""The rules of CONTRIBUTING, held against the source: layers, rings, libraries, sizes, faces.

The tables below are the rules. How they are checked stands in `tests/support`; that the checks bite, in
`tests/unit/test_architecture_rules.py`.
"""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import rules, sizes
from tests.support.source import FACE, Package, Violation

SOURCE = Path(__file__).parent.parent / "src" / "headway"

LAYERS = [  # bottom first; a part may import itself and lower rows
    {"errors", "clock", "interruptible"},
    {"core", "kernels"},
    {"kv", "models", "obs", "workload", "tenancy", "report"},
    {"sched", "executor"},
    {"engine"},
    {FACE},
    {"sim", "server", "bench"},
    {"tune", "fidelity", "experiments"},
    {"cli"},
    {"__main__"},
]

THIRD_PARTY = {  # a part that is not listed lives on the standard library
    "kernels": {"numpy"},
    "tenancy": {"sqlalchemy"},
    "models": {"numpy", "gguf", "safetensors", "tokenizers", "jinja2", "platformdirs", "rich"},
    "executor": {"numpy"},
    "workload": {"numpy", "yaml"},
    "obs": {"prometheus_client", "opentelemetry"},
    "report": {"numpy", "matplotlib"},
    "server": {"fastapi", "starlette", "uvicorn", "pydantic", "msgspec"},
    "bench": {"numpy", "httpx"},
    "cli": {"typer", "rich", "httpx"},
}

COMPILED = {"_native": {"kernels", "executor"}}

TIME_OF_DAY = {
    "headway/bench/http.py": "Retry-After may be a date",
    "headway/bench/runner.py": "a result says when it was made",
    "headway/cli/usage.py": "usage is told by day",
    "headway/models/chat_template.py": "templates write the date",
    "headway/obs/spans.py": "spans bear the time of day",
    "headway/server/reply.py": "answers say when they were made",
    "headway/server/served.py": "so do models",
    "headway/tenancy/editing.py": "keys say when they were made",
    "headway/tenancy/house.py": "keys expire on a date",
    "headway/tenancy/usage.py": "usage is counted by day",
}

LIMITS = sizes.Limits(
    file_lines=300,
    policy_lines=180,
    function_lines=40,
    parameters=6,
    public_methods=12,
    attributes=15,
    record_fields=40,
)
MAX_OWN_IMPORTS = 10

# "rule where" of a violation -> why it may stay. One that no longer matches anything fails the test.
WAIVERS: dict[str, str] = {
    "function-lines headway/cli/serve.py:serve": "one line per flag, and nothing else",
}

STANDARD_LIBRARY_ONLY = ["headway.core", "headway.kv", "headway.sched"]


@pytest.fixture(scope="module")
def package() -> Package:
    return Package.read(SOURCE)


CHECKS = {
    "layers": lambda package: rules.check_layers(package, LAYERS),
    "rings": rules.check_rings,
    "libraries": lambda package: rules.check_third_party(package, THIRD_PARTY, COMPILED),
    "imports": lambda package: rules.check_num_imports(package, MAX_OWN_IMPORTS),
    "faces": rules.check_faces,
    "wall-clock": lambda package: rules.check_wall_clock(package, TIME_OF_DAY),
    "sizes": lambda package: sizes.check_sizes(package, LIMITS),
    "words": sizes.check_words,
}


@pytest.fixture(scope="module")
def found(package) -> "dict[str, list[Violation]]":
    """What each check finds: looked for once, asked for by every test."""
    return {name: list(check(package)) for name, check in CHECKS.items()}


@pytest.fixture
def unwaived(found):
    def of(check: str) -> list[str]:
        return sorted(str(violation) for violation in found[check] if violation.key not in WAIVERS)

    return of


def test_parts_import_lower_rows_only(unwaived):
    """Nothing imports sideways or up, not even inside a function."""
    assert unwaived("layers") == []


def test_no_module_reaches_itself(unwaived):
    """There is no ring of imports, hidden ones counted."""
    assert unwaived("rings") == []


def test_libraries_stay_where_they_belong(unwaived):
    """Each third-party library, and our compiled module, is imported by its own parts alone."""
    assert unwaived("libraries") == []


def test_modules_lean_on_few_others(unwaived):
    """No module imports more than ten of ours."""
    assert unwaived("imports") == []


def test_the_time_of_day_measures_nothing(unwaived):
    """It jumps when somebody sets the clock: what lasts, waits or is late is measured on a clock that does not."""
    assert unwaived("wall-clock") == []


def test_files_functions_and_classes_are_small(unwaived):
    """Everything fits the budgets."""
    assert unwaived("sizes") == []


def test_nothing_is_swallowed_unfinished_or_silenced_without_a_reason(unwaived):
    """No blanket `except: pass`, no TODO, no bare `noqa`."""
    assert unwaived("words") == []


def test_faces_are_honest(unwaived):
    """Each package says what it is for, defines nothing in its face, and lists what it re-exports."""
    assert unwaived("faces") == []


def test_every_waiver_is_still_needed(found):
    """A waiver has a reason, and goes when its cause goes."""
    keys = {violation.key for violations in found.values() for violation in violations}
    assert WAIVERS.keys() - keys == set()
    assert all(WAIVERS.values())


def test_faces_deliver_what_they_list(package):
    """Every name in every `__all__` of the installed package can be had."""
    faces = [module.name for module in package.modules.values() if module.is_face]
    missing = []
    for name in faces:
        face = importlib.import_module(name)
        missing += [f"{name}.{public}" for public in getattr(face, "__all__", ()) if not hasattr(face, public)]
    assert missing == []


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_scheduling_needs_the_standard_library_only(name):
    """A fresh interpreter that imports all of core, kv or sched has loaded no library."""
    script = f"""
import importlib, pkgutil, sys
before = set(sys.modules)
top = importlib.import_module({name!r})
for found in pkgutil.walk_packages(top.__path__, top.__name__ + "."):
    importlib.import_module(found.name)
loaded = {{module.partition(".")[0] for module in set(sys.modules) - before}}
print(*sorted(loaded - sys.stdlib_module_names - {{"headway"}}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
