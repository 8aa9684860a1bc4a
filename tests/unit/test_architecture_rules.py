"""Each rule of the architecture test is broken on purpose in a small package, and caught."""

from textwrap import dedent

import pytest

from tests.support import rules, sizes
from tests.support.source import FACE, Package

LAYERS = [{"errors"}, {"core"}, {"kv", "obs"}, {"sched"}, {FACE}, {"cli"}]
SMALL = sizes.Limits(
    file_lines=20, policy_lines=10, function_lines=5, parameters=2, public_methods=2, attributes=2, record_fields=4
)


@pytest.fixture
def fake(tmp_path):
    """Write a package `pkg` from {path: source} and read it; faces that are not given are honest and empty."""

    def build(**files):
        root = tmp_path / "pkg"
        sources = {name.replace("__", "/") + ".py": dedent(text) for name, text in files.items()}
        for name, text in sources.items():
            path = root / name.replace("INIT", "__init__")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for folder in {root, *(path.parent for path in root.rglob("*.py"))}:
            if not (folder / "__init__.py").exists():
                (folder / "__init__.py").write_text('"""What it is for."""\n', encoding="utf-8")
        return Package.read(root)

    return build


def keys(violations):
    return sorted(violation.key for violation in violations)


def lines(num):
    return "\n".join(f"x{i} = {i}" for i in range(num))


HIDDEN = [
    "import pkg.sched.plan",
    "from pkg.sched import plan",
    "from pkg.sched.plan import Plan",
    "from ..sched.plan import Plan",
    "from .. import sched",
    "def late():\n    from pkg.sched.plan import Plan",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pkg.sched.plan import Plan",
    "import importlib\ndef late():\n    return importlib.import_module('pkg.sched.plan')",
]


@pytest.mark.parametrize("statement", HIDDEN)
def test_an_import_upwards_is_found_wherever_it_hides(fake, statement):
    """kv may not see sched, in whatever spelling."""
    found = keys(rules.check_layers(fake(kv__pool=statement, sched__plan="class Plan: ..."), LAYERS))
    assert len(found) == 1
    assert found[0].startswith("layer pkg/kv/pool.py -> pkg.sched")


def test_sideways_and_the_face_are_up_and_down_is_free(fake):
    """kv may not see obs or the package's face; sched may see kv; a face above may see everything below."""
    package = fake(
        kv__pool="from pkg.obs import trace\nfrom pkg import VERSION",
        obs__trace="",
        sched__plan="from pkg.kv import pool\nfrom pkg.errors import Bad",
        errors="class Bad(Exception): ...",
        INIT="from pkg.sched.plan import Plan",
        cli__main="from pkg import VERSION",
    )
    assert keys(rules.check_layers(package, LAYERS)) == [
        "layer pkg/kv/pool.py -> pkg",
        "layer pkg/kv/pool.py -> pkg.obs.trace",
    ]


def test_a_part_without_a_row_is_named(fake):
    """A new folder must be placed in the table first."""
    assert keys(rules.check_layers(fake(magic__wand=""), LAYERS)) == [
        "layer-unknown pkg/magic/__init__.py",
        "layer-unknown pkg/magic/wand.py",
    ]


def test_a_part_that_does_not_exist_yet_keeps_its_row(fake):
    """An import from a part without files is judged by that part's row, and makes no ring through the face."""
    package = fake(
        kv__pool="from pkg.sched.plan import Plan",
        sched__INIT='"""Later."""\nfrom pkg.cli.app import App\n__all__ = ["App"]',
        INIT='"""Face."""\nfrom pkg.kv import pool\n__all__ = ["pool"]',
    )
    assert keys(rules.check_layers(package, LAYERS)) == [
        "layer pkg/kv/pool.py -> pkg.sched",
        "layer pkg/sched/__init__.py -> pkg.cli",
    ]
    assert keys(rules.check_rings(package)) == []


def test_a_ring_is_found_through_functions_and_type_checking(fake):
    """a -> b at the top, b -> c in a function, c -> a for types only: still a ring; d hangs on it but is outside."""
    package = fake(
        kv__a="from pkg.kv import b",
        kv__b="def late():\n    import pkg.kv.c",
        kv__c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import A",
        kv__d="from pkg.kv.a import b",
    )
    assert keys(rules.check_rings(package)) == ["ring pkg.kv.a pkg.kv.b pkg.kv.c"]


def test_a_module_that_asks_its_own_face_is_a_ring(fake):
    """The face imports the module, the module imports a name from the face."""
    package = fake(kv__INIT="from pkg.kv.pool import Pool", kv__pool="from pkg.kv import Pool")
    assert keys(rules.check_rings(package)) == ["ring pkg.kv pkg.kv.pool"]


def test_libraries_and_the_compiled_module_have_their_places(fake):
    """NumPy in a function of core is found, in obs it is allowed; the standard library is free."""
    package = fake(
        core__a="import json\ndef late():\n    import numpy.linalg as la",
        kv__b="from pkg import _native\nfrom pkg._native import run",
        obs__c="import numpy as np\nimport pkg._native",
    )
    found = keys(rules.check_third_party(package, {"obs": {"numpy"}}, {"_native": {"obs"}}))
    assert found == ["compiled pkg/kv/b.py -> pkg._native", "third-party pkg/core/a.py -> numpy"]


def test_a_module_with_many_own_imports_is_found(fake):
    """Three modules are over a limit of two; two names from one module count once; a face is free."""
    package = fake(
        kv__a="",
        kv__b="",
        kv__c="",
        kv__d="import pkg.kv.a\nfrom pkg.kv import b, c",
        kv__e="from pkg.kv.a import x, y",
        kv__INIT="from pkg.kv import a, b, c, d, e",
    )
    assert keys(rules.check_num_imports(package, 2)) == ["num-imports pkg/kv/d.py"]


def test_sizes_over_the_limit_are_found(fake):
    """Files, policies, functions (nested too), parameters, methods, attributes: each is counted as promised."""
    package = fake(
        core__long=lines(21),
        core__fits=lines(20),
        sched__policies__greedy=lines(11),
        core__funcs="def outer():\n    def inner(a, b, c):\n" + "        1\n" * 5 + "    return 1",
        core__params="class A:\n    def f(self, a, b, *, c, d): ...\n    def g(self, a, b, c, /): ...",
    )
    assert keys(sizes.check_sizes(package, SMALL)) == [
        "file-lines pkg/core/long.py",
        "file-lines pkg/sched/policies/greedy.py",
        "function-lines pkg/core/funcs.py:outer",
        "function-lines pkg/core/funcs.py:outer.inner",
        "parameters pkg/core/funcs.py:outer.inner",
        "parameters pkg/core/params.py:A.g",
    ]


def test_wide_classes_are_found(fake):
    """Properties and private methods are free; attributes count once wherever they are set; records hold more."""
    package = fake(
        core__methods="""
            class Wide:
                def a(self): ...
                def b(self): ...
                async def c(self): ...
            class Fine:
                def a(self): ...
                def b(self): ...
                def _c(self): ...
                @property
                def d(self): ...
            """,
        core__fields="""
            class Heavy:
                kept: int
                shared: ClassVar[int]
                def a(self): self.kept = self.x = self.y = 1
            @dataclass(frozen=True)
            class Said:
                a: int
                b: int
                c: int
                d: int
            """,
        core__wire="""
            class Wire(pydantic.BaseModel): ...
            class Body(Wire):
                a: int
                b: int
                c: int
                d: int
                e: int
            class Light(Wire):
                a: int
                b: int
                c: int
            """,
    )
    assert keys(sizes.check_sizes(package, SMALL)) == [
        "attributes pkg/core/fields.py:Heavy",
        "attributes pkg/core/wire.py:Body",
        "public-methods pkg/core/methods.py:Wide",
    ]


SWALLOWERS = [
    "try:\n    f()\nexcept Exception:\n    pass",
    "try:\n    f()\nexcept:\n    ...",
    "try:\n    f()\nexcept (OSError, BaseException):\n    pass",
    "import contextlib\nwith contextlib.suppress(Exception):\n    f()",
]


@pytest.mark.parametrize("text", SWALLOWERS)
def test_a_swallowed_exception_is_found(fake, text):
    """Whatever the spelling, dropping every error is caught."""
    assert keys(sizes.check_words(fake(core__a=text))) == ["swallowed pkg/core/a.py"]


def test_a_named_or_handled_exception_is_fine(fake):
    """Dropping one known error, or acting on a broad one, is allowed."""
    text = "try:\n    f()\nexcept KeyError:\n    pass\nexcept Exception as error:\n    g(error)"
    assert keys(sizes.check_words(fake(core__a=text))) == []


@pytest.mark.parametrize("text", ["x = 1  # TODO: later", "# FIXME", '"""Doc.\n\nXXX not done.\n"""'])
def test_unfinished_work_is_found(fake, text):
    """Marks for later are caught in comments and docstrings."""
    assert keys(sizes.check_words(fake(core__a=text))) == ["unfinished pkg/core/a.py"]


@pytest.mark.parametrize("comment", ["# noqa", "# noqa: E501", "# type: ignore", "# type: ignore[misc]"])
def test_a_silenced_checker_needs_code_and_reason(fake, comment):
    """A bare silencer is caught; with a code and a reason it may stay."""
    assert keys(sizes.check_words(fake(core__a=f"x = 1  {comment}"))) == ["silenced pkg/core/a.py"]
    reasoned = "x = 1  # type: ignore[misc]  # the library says Any\ny = 2  # noqa: E501, E741  a table"
    assert keys(sizes.check_words(fake(core__a=reasoned))) == []


def test_dishonest_faces_are_found(fake):
    """No docstring, a definition, a name too many or too few: each is named."""
    package = fake(
        core__INIT="from pkg.core.a import Known, Hidden\n__all__ = ['Known', 'Ghost']\ndef helper(): ...",
        core__a="",
        kv__INIT='"""Fine."""\nfrom typing import Any\nfrom pkg.kv.a import A\n__all__ = ["A"]',
        kv__a="",
        INIT='"""Lazy."""\nif T:\n    from pkg.kv import A\n__all__ = ["A", "v"]\nv = 1\ndef __getattr__(name): ...',
    )
    assert keys(rules.check_faces(package)) == [
        "face-all pkg/core/__init__.py:Ghost",
        "face-all pkg/core/__init__.py:Hidden",
        "face-defines pkg/core/__init__.py:helper",
        "face-docstring pkg/core/__init__.py",
    ]


def test_the_time_of_day_is_for_those_who_may_ask(fake):
    """However it is spelt; who may and does not is told, too. A clock that does not jump is free."""
    package = fake(
        kv__a="import time\nbegan = time.time()",
        kv__b="from time import time_ns",
        kv__c="import datetime\nbegan = datetime.datetime.now()",
        kv__d="import time\nbegan = time.monotonic()",
        obs__e="from datetime import date\nday = date.today()",
    )
    assert keys(rules.check_wall_clock(package, {"pkg/obs/e.py": "a day", "pkg/kv/d.py": "none"})) == [
        "wall-clock pkg/kv/a.py",
        "wall-clock pkg/kv/b.py",
        "wall-clock pkg/kv/c.py",
        "wall-clock pkg/kv/d.py",
    ]
