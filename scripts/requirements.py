"""Print one list of requirements of this project, one a line, read from pyproject.toml.

    python scripts/requirements.py build | tools | runtime | dev

`tools` asks the build backend what else it needs here: CMake and Ninja, where the machine has none. pip can install all
of these along with the project only, which would rebuild it whenever a tool changes.
"""

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(kind: str) -> list[str]:
    """Requirement lines of one kind; KeyError for an unknown kind."""
    if kind == "tools":
        from scikit_build_core.build import get_requires_for_build_wheel  # noqa: PLC0415  installed by `build`

        return get_requires_for_build_wheel()
    table = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    lists = {
        "build": table["build-system"]["requires"],
        "runtime": table["project"]["dependencies"],
        **table["project"]["optional-dependencies"],
    }
    wanted: list[str] = lists[kind]
    return wanted


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
