"""Nothing is forgotten: every part is in `cases.py`, every name is documented, every file keeps to its layer."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.distributions import Distribution

import argrad as ag
import cases

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "argrad"
SOURCES = sorted(SRC.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

# docs/design.md, "Layers"; private modules live where their users do.
LAYERS = {
    0: {
        "_types",
        "_errors",
        "_checks",
        "_numerics",
        "_autograd",
        "_counter",
        "_hash",
        "random",
        "_kernels",
    },
    1: {
        "noise",
        "_gamma",
        "class_noise",
        "regularizers",
        "backward",
        "solvers",
        "gumbel",
    },  # OneHot draws with gumbel_max
    2: {"structures"},
    3: {"conditional_gumbel", "relaxed", "structured", "perturbed", "gibbs", "traces", "schedules"}
    | {"sequences", "streams"},
    4: {"estimators", "losses", "calibration", "openset", "reparam"},
    5: {"nn", "presets", "diagnose", "_diagnose", "monitor", "cite", "testing", "plot"}
    | {"integrations", "_catalogue", "compiled"},
    6: {
        "recipes",
        "play",
        "cli",
        "_problems",
        "__main__",
        "__init__",
    },  # the command line starts the demo, a recipe
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# ---- every part is in the list -------------------------------------------------------------------


def public_classes(base: type) -> set[type]:
    """Concrete public subclasses of `base`, from the flat names and from public modules."""
    values = [getattr(ag, name) for name in ag.__all__]
    for module in [v for v in values if isinstance(v, types.ModuleType)]:
        own = (v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__)
        values += [v for v in own if not getattr(v, "__name__", "_").startswith("_")]
    classes = {v for v in values if inspect.isclass(v) and issubclass(v, base)}
    return {c for c in classes if not inspect.isabstract(c) and c is not base}


def missing(base: type, present: list[object]) -> set[str]:
    return {c.__name__ for c in public_classes(base) - {type(p) for p in present}}


def test_every_noise_is_a_case() -> None:
    assert missing(ag.Noise, cases.NOISES) == set()


def test_every_class_noise_is_a_case() -> None:
    assert missing(ag.ClassNoise, cases.CLASS_NOISES) == {"InBatch"}


def test_every_schedule_is_a_case() -> None:
    assert missing(ag.schedules.Schedule, cases.SCHEDULES) == set()
    assert ag.schedules.Learnable in {type(s) for s in cases.SCHEDULES}


def test_every_distribution_is_a_case() -> None:
    made = [case.make(torch.zeros(2, 3)) for case in cases.DISTRIBUTIONS]
    assert missing(Distribution, made) == set()


def test_every_structure_is_a_case() -> None:
    # an Oracle cannot be enumerated; test_structures.py has tests of its own for it
    assert missing(ag.Structure, [case.structure for case in cases.STRUCTURES]) == {"Oracle"}


def test_every_estimator_is_a_case() -> None:
    q = ag.Gibbs(ag.Bits(), torch.zeros(3))
    assert missing(ag.Estimator, [case.make(q) for case in cases.ESTIMATORS]) == set()


@pytest.mark.parametrize("kind", ["STRUCTURES", "ESTIMATORS", "DISTRIBUTIONS"])
def test_case_names_are_unique(kind: str) -> None:
    names = [case.name for case in getattr(cases, kind)]
    assert len(names) == len(set(names))


# ---- every name is documented --------------------------------------------------------------------


def test_the_stub_and_the_package_agree() -> None:
    assert set(ag.__all__) <= set(dir(ag))
    for name in ag.__all__:
        assert getattr(ag, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'gumbel_soft'"):
        ag.gumbel_soft  # noqa: B018


@pytest.mark.parametrize("name", ag.__all__)
def test_public_names_have_a_docstring_with_an_example(name: str) -> None:
    value = getattr(ag, name)
    text = inspect.getdoc(value) or ""
    assert text, f"`argrad.{name}` has no docstring"
    is_error = inspect.isclass(value) and issubclass(value, (Exception, Warning))
    if not is_error and not isinstance(value, types.ModuleType):
        assert "Examples:" in text, f"the docstring of `argrad.{name}` has no Examples"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import argrad; dir(argrad)", ["torch", "numpy", "numba", "scipy"]),
        ("import argrad; argrad.gumbel_softmax, argrad.CounterRNG(0), argrad.nn", ["numba", "scipy"]),
    ],
)
def test_imports_wait_until_they_are_needed(code: str, absent: list[str]) -> None:
    check = f"{code}\nimport sys\nassert not set(sys.modules) & set({absent})"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# ---- layers --------------------------------------------------------------------------------------


def imports(tree: ast.Module) -> Iterator[str]:
    """Parts of argrad that a file imports at run time, also inside functions."""
    for_types = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for_types |= {id(child) for statement in node.body for child in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("argrad."))
        elif isinstance(node, ast.ImportFrom) and node.module == "argrad":
            yield from (a.name for a in node.names if a.name != "__version__")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("argrad."):
            yield str(node.module).split(".")[1]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_imports_from_its_layer_or_below(path: Path) -> None:
    own = path.relative_to(SRC).with_suffix("").parts[0]
    assert own in LAYER_OF, f"{own} has no layer; add it to LAYERS and docs/design.md"
    above = {name for name in imports(parse(path)) if LAYER_OF[name] > LAYER_OF[own]}
    assert not above, f"{own} (layer {LAYER_OF[own]}) imports {above} from above"


# ---- habits --------------------------------------------------------------------------------------


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_library_code_does_not_print(path: Path) -> None:
    if path.name != "cli.py" and "recipes" not in path.parts:
        assert "print" not in calls(parse(path))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def asserts(function: ast.FunctionDef, known: set[str]) -> bool:
    """Holds an assertion, or calls something that does."""
    if any(isinstance(node, ast.Assert) for node in ast.walk(function)):
        return True
    return any(name in known or name.startswith(("assert_", "check_")) for name in calls(function))


@functools.cache
def asserting_functions() -> set[str]:
    """Names of all functions of the tests that assert something, helpers of helpers included."""
    trees = [parse(path) for path in (ROOT / "tests").rglob("*.py")]
    found = {"raises", "warns", "fail", "opcheck", "check"}
    while new := {f.name for tree in trees for f in functions(tree) if asserts(f, found)} - found:
        found |= new
    return found


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_no_test_is_without_an_assertion(path: Path) -> None:
    for function in functions(parse(path)):
        if function.name.startswith("test_"):
            helpers = asserting_functions() - {function.name}
            assert asserts(function, helpers), f"{path.name}: {function.name} asserts nothing"


def error_builders() -> set[str]:
    """Names that make an error: the classes of `_errors`, and functions annotated to return one."""
    classes = {n.name for n in ast.walk(parse(SRC / "_errors.py")) if isinstance(n, ast.ClassDef)}
    functions = set()
    for path in SOURCES:
        for node in ast.walk(parse(path)):
            returns = (
                ast.unparse(node.returns or ast.Constant(None))
                if isinstance(node, ast.FunctionDef)
                else ""
            )
            if returns in classes:
                functions.add(node.name)
    return classes | functions


ERROR_BUILDERS = error_builders()
# Python's own protocols, and the ends of programs.
ALLOWED = {
    ("__init__.py", "AttributeError"),
    ("cli.py", "SystemExit"),
    ("cli.py", "ArgumentTypeError"),
}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_errors_are_those_of_the_project(path: Path) -> None:
    """So that every refusal can be caught as `ArgradError`, and is a sentence from one place."""
    if path.parent.name == "_kernels" or "recipes" in path.parts:
        return
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            where = f"{name_of(path)}:{node.lineno}"
            assert name in ERROR_BUILDERS or (path.name, name) in ALLOWED, f"{where} raises {name}"
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
            assert not hasattr(builtins, node.exc.id), f"{name_of(path)}:{node.lineno}"


def test_errors_are_also_the_builtin_ones() -> None:
    errors = importlib.import_module("argrad._errors")
    for name, builtin in {
        "InputError": ValueError,
        "InputTypeError": TypeError,
        "UnsupportedError": NotImplementedError,
        "ConvergenceError": RuntimeError,
    }.items():
        assert issubclass(getattr(errors, name), builtin)
        assert issubclass(getattr(errors, name), ag.ArgradError)
