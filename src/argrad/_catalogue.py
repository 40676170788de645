"""What argrad offers, read from the sources without importing them.

`argrad list` and `argrad cite` answer in a tenth of a second because torch is never loaded: the public
names come from `__init__.pyi`, their docstrings from the syntax trees of the modules that define them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import argrad

_ROOT = Path(__file__).parent

# Modules that hold one kind of thing under another name; every other module or package is its own kind.
_KINDS = {
    "_checks": "errors",
    "_errors": "errors",
    "compiled": "estimators",
    "conditional_gumbel": "gumbel",
    "_diagnose": "diagnostics",
    "monitor": "diagnostics",
    "traces": "distributions",
    "gibbs": "distributions",
    "perturbed": "distributions",
    "relaxed": "distributions",
    "structured": "distributions",
}
_TITLES = {
    "gumbel": "Gumbel toolbox",
    "random": "Random numbers",
    "nn": "Layers (nn)",
    "cite": "Citations",
    "openset": "Open sets",
    "plot": "Plots",
    "reparam": "Reparameterisations",
}
# First those a newcomer looks for; kinds that are not named here follow in alphabetical order.
_ORDER = ("gumbel", "distributions", "structures", "estimators", "noise", "regularizers", "backward")

# A key is author and year, as in `[jang2017]`; `References:` ends at an empty line or the docstring's end.
KEY = re.compile(r"\[([a-z][a-z-]*\d{4}[a-z]?)\]")
_BLOCK = re.compile(r"^\s*References:(.*?)(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """One public name."""

    name: str  # as typed after `argrad.`
    kind: str  # what `argrad list KIND` calls it
    module: str  # where it is defined
    summary: str  # first sentence of its docstring, in plain text
    references: tuple[str, ...]  # keys of references.bib
    flags: tuple[str, ...] = ()  # what an estimator claims and asks for


def find_references(*docstrings: str | None) -> tuple[str, ...]:
    """The keys on the `References:` lines of these docstrings, each once, in order."""
    blocks = [block for doc in docstrings if doc for block in _BLOCK.findall(doc)]
    return tuple(dict.fromkeys(key for block in blocks for key in KEY.findall(block)))


@functools.cache
def parts() -> dict[str, Part]:
    """Every public name, by name."""
    names, modules = vars(argrad)["_names"], vars(argrad)["_modules"]  # which the stub does not show
    found = {name: _describe(name, module, name) for name, module in names.items()}
    listed = {(part.module, name) for name, part in found.items()}
    for module in sorted(modules):
        for name in _public_names(module):
            part = _describe(f"{module}.{name}", module, name)
            if (part.module, name) not in listed:
                found[part.name] = part
    return found


def kinds() -> list[str]:
    """The kinds there are, in the order of the list."""
    present = {part.kind for part in parts().values()}
    return [k for k in _ORDER if k in present] + sorted(present - {*_ORDER, "errors"}) + ["errors"]


def title(kind: str) -> str:
    """The heading of a kind."""
    return _TITLES.get(kind, kind.replace("_", " ").capitalize())


# ---- reading the sources -------------------------------------------------------------------------


def _describe(name: str, module: str, attribute: str) -> Part:
    home, node = _definition(module, attribute) or (module, None)
    if node is None and f"{module}.{attribute}" in _submodules(module):
        home, node = f"{module}.{attribute}", _tree(f"{module}.{attribute}")
    docs = [*_docstrings(home, node), ast.get_docstring(_tree(home))]
    kind = _KINDS.get(module.split(".")[0], module.split(".")[0])
    flags = tuple(_flags(home, node)) if isinstance(node, ast.ClassDef) else ()
    summary = plain_summary(docs[0] or "")
    return Part(name, kind, f"argrad.{home}", summary, find_references(*docs), flags)


# Flags of the class and what to say of each when False and when True.
_FLAGS = {
    "is_unbiased": ("biased", "unbiased"),
    "needs_differentiable_f": ("any cost", "differentiable cost"),
}


def _flags(module: str, node: ast.ClassDef) -> Iterator[str]:
    """The words for those of `_FLAGS` that the class or one of its bases sets."""
    for name, words in _FLAGS.items():
        value = _class_constant(module, node, name)
        if isinstance(value, bool):
            yield words[value]


def _class_constant(module: str, node: ast.ClassDef, name: str) -> object:
    """The constant that a class, or the first of its bases that does, gives to a name; None if none does."""
    for line in node.body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.Constant(value=value)) if (
                found == name
            ):
                return value
    for base in node.bases:
        match _definition(module, base.id) if isinstance(base, ast.Name) else None:
            case (home, ast.ClassDef() as parent):
                value = _class_constant(home, parent, name)
                if value is not None:
                    return value
    return None


def _submodules(package: str) -> set[str]:
    """The modules and packages in it."""
    folder = _ROOT.joinpath(*package.split("."))
    return {
        f"{package}.{path.stem}" for path in folder.glob("*") if path.suffix == ".py" or path.is_dir()
    }


@functools.cache
def _tree(module: str) -> ast.Module:
    path = _ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _public_names(module: str) -> list[str]:
    """`__all__` if the module has one, else what it defines itself without a leading underscore."""
    names = []
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and _targets(node) == ["__all__"]:
            return list(ast.literal_eval(node.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.append(node.name)
    return names


def _definition(module: str, name: str) -> tuple[str, ast.AST] | None:
    """The module and the node that define `module.name`, through re-exports and aliases inside argrad."""
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and name in _targets(node) and isinstance(node.value, ast.Name):
            return _definition(module, node.value.id)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("argrad."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(str(node.module).removeprefix("argrad."), alias.name)
    return None


def _targets(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _docstrings(module: str, node: ast.AST | None) -> Iterator[str | None]:
    """Its own docstring, those of its methods, and those of the classes of argrad it inherits from."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
        yield None
        return
    yield ast.get_docstring(node)
    if isinstance(node, ast.ClassDef):
        yield from (ast.get_docstring(m) for m in node.body if isinstance(m, ast.FunctionDef))
        for base in node.bases:
            found = _definition(module, base.id) if isinstance(base, ast.Name) else None
            if found is not None:
                yield from _docstrings(*found)


_SIGNS = {
    r"\langle": "<",
    r"\rangle": ">",
    r"\nabla": "grad",
    r"\partial": "d",
    r"\approx": "~=",
    r"\quad": " ",
    r"\varepsilon": "eps",
    r"\sim": "~",
    r"\to": "->",
    r"\ge": ">=",
    r"\le": "<=",
    r"\cdot": "*",
    r"\|": "|",
    r"\,": " ",
    r"\;": " ",
    r"\ ": " ",
}


def plain_summary(docstring: str) -> str:
    r"""The first paragraph's first sentence, with `$\mathrm{softmax}(\theta)$` as `softmax(theta)`."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z$`])", paragraph)[0]
    sentence = re.sub(r"\$\$.*", "", sentence).replace("$", "")
    sentence = re.sub(r"\\(?:mathrm|mathbb|text|operatorname|mathcal)\{([^}]*)\}", r"\1", sentence)
    sentence = re.sub(r"\\d?frac\s*(\w|\{[^}]*\})\s*(\w|\{[^}]*\})", r"\1/\2", sentence)
    sentence = re.sub(r"(\\[A-Za-z]+)(?=\\[a-z])", r"\1 ", sentence)
    for tex, text in _SIGNS.items():
        sentence = sentence.replace(tex, text)
    sentence = sentence.replace("\\", "")  # \theta is theta
    return " ".join(re.sub(r"[{}`]", "", sentence).split()).rstrip(".:")
