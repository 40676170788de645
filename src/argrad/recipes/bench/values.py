"""One value of an option: from text, to text, and whether it is allowed."""

from __future__ import annotations

import argparse
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

_ALL = "all"  # how an empty tuple is written


def reader(kind: Any, rules: Mapping[str, Any]) -> Callable[[str], Any]:
    """From a text to a value of the type, for `argparse`."""

    def read(text: str) -> Any:
        try:
            value = _convert(kind, text)
            _check(value, rules)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


def validate(kind: Any, value: Any, rules: Mapping[str, Any]) -> None:
    """Raise a `ValueError` that says why the flag would not have let this value pass."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be True or False; got {value!r}")
        return
    if _convert(kind, as_text(value)) != value:
        raise ValueError(f"must be what `{metavar(kind)}` on the command line gives; got {value!r}")
    _check(value, rules)


def _convert(kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"must be one of {', '.join(get_args(kind))}; got {text!r}")
        return text
    if get_origin(kind) is tuple:
        parts = [] if text == _ALL else [part.strip() for part in text.split(",")]
        return tuple(_convert(get_args(kind)[0], part) for part in parts if part)
    if _is_optional(kind):
        return None if text.lower() == "none" else _convert(_inner(kind), text)
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"must be {_article(kind)}; got {text!r}") from None


def _check(value: Any, rules: Mapping[str, Any]) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)):
            if not math.isfinite(number):
                raise ValueError(f"must be finite; got {number}")
            if rules["at_least"] is not None and number < rules["at_least"]:
                raise ValueError(f"must be at least {rules['at_least']}; got {number}")
            if rules["above"] is not None and number <= rules["above"]:
                raise ValueError(f"must be above {rules['above']}; got {number}")


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (types.UnionType, typing.Union)


def _inner(kind: Any) -> Any:
    """`int` of `int | None`."""
    return next(k for k in get_args(kind) if k is not type(None))


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number"}.get(kind, f"a {kind.__name__}")


def metavar(kind: Any) -> str:
    """What stands for a value of the type in `--help`."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return "A,B" if inner is str else f"{metavar(inner)},..."
    if _is_optional(kind):
        return metavar(_inner(kind))
    return {int: "N", float: "X"}.get(kind, "TEXT")


def as_text(value: Any) -> str:
    """A value as it is typed behind its flag; every digit of a number."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(as_text, value)) if value else _ALL
    return str(value)
