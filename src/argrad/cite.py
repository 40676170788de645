"""BibTeX of the papers behind what you use.

Docstrings name their sources on a line `References: [jang2017], [maddison2017].`; the entries are in
`references.bib`, which ships with the package. Nothing here imports torch, so that `argrad cite` is quick.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import sys
import types
from collections.abc import Iterable
from pathlib import Path

from argrad import _catalogue
from argrad._errors import InputError

_ENTRY = re.compile(r"^@\w+\{(?P<key>[^,\s]+),$.*?^\}$", re.DOTALL | re.MULTILINE)


def cite(*objects: object) -> str:
    r"""The BibTeX entries behind functions, classes, objects and modules of argrad.

    A class brings the references of its methods and of the classes it inherits from, an object with
    parts (a frozen dataclass) those of its parts, and everything those of the module that defines it.

    Args:
        objects: parts of argrad; or their public names as strings, or keys such as `"jang2017"`.

    Returns:
        BibTeX, each entry once, in the order of first use; empty if nothing is cited.

    Raises:
        InputError: for a name or a key that is not known, with the nearest ones.

    Examples:
        >>> import argrad as ag
        >>> print(ag.cite(ag.gumbel_max))
        @book{gumbel1954,
          author    = {Gumbel, Emil Julius},
        ...
        >>> ag.cite("gumbel_max") == ag.cite(ag.gumbel_max)
        True
    """
    if not objects:
        raise InputError(
            "`cite(...)` needs at least one argument: a part of argrad, its name, or a key; got none. "
            'Write `cite(argrad.gumbel_softmax)` or `cite("jang2017")`.'
        )
    keys = dict.fromkeys(key for item in objects for key in references(item))
    return "\n\n".join(entry(key) for key in keys) + ("\n" if keys else "")


def references(item: object) -> tuple[str, ...]:
    """The keys that `item` cites; for a string, those of the public name, or the key itself."""
    if isinstance(item, str):
        return _references_of_name(item)
    if inspect.ismodule(item):
        return _catalogue.find_references(
            item.__doc__, *_docstrings(vars(item).values(), item.__name__)
        )
    if inspect.isclass(item):
        return _catalogue.find_references(*_docstrings_of_class(item))
    if inspect.isroutine(item):
        return _catalogue.find_references(item.__doc__, _module_docstring(item))
    own = _catalogue.find_references(*_docstrings_of_class(type(item)))
    return tuple(dict.fromkeys([*own, *_references_of_fields(item)]))


def entry(key: str) -> str:
    """The BibTeX entry of a key, as it stands in `references.bib`."""
    if key not in bibliography():
        raise InputError(
            f"`references.bib` has no entry [{key}]{_nearest(key, bibliography())}. "
            "A new reference needs an entry with author, title, year and venue there."
        )
    return bibliography()[key]


@functools.cache
def bibliography() -> dict[str, str]:
    """Every entry of `references.bib` by key."""
    text = Path(__file__).with_name("references.bib").read_text(encoding="utf-8")
    return {match["key"]: match[0] for match in _ENTRY.finditer(text)}


def _references_of_name(name: str) -> tuple[str, ...]:
    parts = _catalogue.parts()
    short = name.removeprefix("argrad.").removeprefix("ag.")
    if short in parts:
        return parts[short].references
    if name in bibliography():
        return (name,)
    raise InputError(
        f"argrad has no public name or reference {name!r}{_nearest(name, [*parts, *bibliography()])}. "
        "`argrad list` shows all names."
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    """`; the nearest are ...`, or nothing if none is near."""
    lower = {word.lower(): word for word in known}
    near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.55)
    words = ", ".join(f"`{lower[word]}`" for word in near)
    return f"; the nearest {'is' if len(near) == 1 else 'are'} {words}" if near else ""


def _references_of_fields(item: object) -> list[str]:
    """What the parts of a dataclass cite, as far as they come from argrad."""
    if not dataclasses.is_dataclass(item):
        return []
    values = [getattr(item, field.name) for field in dataclasses.fields(item)]
    return [key for value in values if _is_ours(type(value)) for key in references(value)]


def _docstrings_of_class(cls: type) -> list[str | None]:
    """Those of the class, of its methods, of its bases in argrad; last, of its module."""
    family = [base for base in cls.__mro__ if base is cls or _is_ours(base)]
    docs = [
        doc for base in family for doc in (vars(base).get("__doc__"), *_docstrings(vars(base).values()))
    ]
    return [*docs, _module_docstring(cls)]


def _docstrings(members: Iterable[object], module: str | None = None) -> list[str | None]:
    """Of functions (methods, properties) among `members`, and of classes and functions of `module`."""
    wanted = [
        m for m in members if inspect.isroutine(m) or isinstance(m, property) or inspect.isclass(m)
    ]
    if module is not None:
        wanted = [m for m in wanted if getattr(m, "__module__", None) == module]
    return [m.__doc__ for m in wanted]


def _module_docstring(item: object) -> str | None:
    module = sys.modules.get(getattr(item, "__module__", None) or "")
    return module.__doc__ if module is not None and module.__name__.startswith("argrad.") else None


def _is_ours(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "argrad"


class _Callable(types.ModuleType):
    """`argrad.cite` is the function; once this module is imported by name, it stands in that place."""

    def __call__(self, *objects: object) -> str:
        return cite(*objects)


sys.modules[__name__].__class__ = _Callable
