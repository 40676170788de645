"""A frozen dataclass is the configuration of a recipe and its command line.

Each field is an `option`, so its default, its type and its help are written once:

    @dataclass(frozen=True, kw_only=True)
    class Config:
        steps: int = option(100_000, "training steps a cell")
        columns: tuple[str, ...] = option((), "only these columns", selects=True)
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args, get_origin

from argrad._errors import InputError


def option(
    default: Any,
    help: str,
    *,
    selects: bool = False,
    at_least: float | None = None,
    above: float | None = None,
) -> Any:
    """A field of a configuration.

    Args:
        default: its value unless a preset or a flag says otherwise.
        help: one phrase for `--help`.
        selects: it chooses which cells are trained but not how, so a finished cell stays valid.
        at_least: the smallest number allowed.
        above: numbers must be larger than this.
    """
    metadata = {"help": help, "selects": selects, "at_least": at_least, "above": above}
    return dataclasses.field(default=default, metadata=metadata)


def add_flags(parser: argparse._ActionsContainer, config: Any) -> None:
    """One flag for every field; what is not given stays `argparse.SUPPRESS`ed, so that presets can differ."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        kind, default = hints[field.name], getattr(config, field.name)
        flag = "--" + field.name.replace("_", "-")
        text = f"{field.metadata['help']} ({_shown(default)})".replace("%", "%%")
        if kind is bool:
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text
            )
        else:
            parser.add_argument(
                flag,
                type=_reader(kind, field.metadata),
                default=argparse.SUPPRESS,
                metavar=_metavar(kind),
                help=text,
            )


def changed(config: Any, values: dict[str, Any]) -> Any:
    """The configuration with some fields replaced; an unknown name is a sentence."""
    known = [f.name for f in dataclasses.fields(config)]
    for name in values:
        if name not in known:
            raise InputError(f"there is no option {name!r}; there are {', '.join(known)}.")
    return dataclasses.replace(config, **values)


def as_dict(config: Any, *, selection: bool = True) -> dict[str, Any]:
    """The configuration ready for JSON; without `selection`, only what changes how a cell is trained."""
    fields = [f for f in dataclasses.fields(config) if selection or not f.metadata["selects"]]
    return {f.name: _plain(getattr(config, f.name)) for f in fields}


def from_dict(kind: type, values: dict[str, Any]) -> Any:
    """The inverse of `as_dict`."""
    tuples = {f.name for f in dataclasses.fields(kind) if isinstance(f.default, tuple)}
    return kind(**{k: tuple(v) if k in tuples else v for k, v in values.items()})


def differing_flags(config: Any, preset: Any) -> str:
    """The flags that turn `preset` into `config`, as one would type them."""
    words = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != getattr(preset, field.name):
            name = field.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
            else:
                words.append(f"--{name} {_shown(value)}")
    return " ".join(words)


# ---- one value ------------------------------------------------------------------------------------


def _reader(kind: Any, rules: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return _checked(_convert(kind, text), rules, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _convert(kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ValueError(f"must be one of {', '.join(get_args(kind))}; got {text!r}")
        return text
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return tuple(_convert(inner, part.strip()) for part in text.split(",") if part.strip())
    if get_origin(kind) in (types.UnionType, typing.Union):  # `int | None`
        inner = next(k for k in get_args(kind) if k is not type(None))
        return None if text.lower() == "none" else _convert(inner, text)
    if kind is str:
        return text
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"must be {_article(kind)}; got {text!r}") from None


def _checked(value: Any, rules: Any, text: str) -> Any:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)):
            if not math.isfinite(number):
                raise ValueError(f"must be finite; got {text!r}")
            if rules["at_least"] is not None and number < rules["at_least"]:
                raise ValueError(f"must be at least {rules['at_least']}; got {text!r}")
            if rules["above"] is not None and number <= rules["above"]:
                raise ValueError(f"must be above {rules['above']}; got {text!r}")
    return value


def _article(kind: type) -> str:
    return {int: "a whole number", float: "a number"}.get(kind, f"a {kind.__name__}")


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if get_origin(kind) is tuple:
        return "A,B"
    if get_origin(kind) in (types.UnionType, typing.Union):
        return _metavar(next(k for k in get_args(kind) if k is not type(None)))
    return {int: "N", float: "X"}.get(kind, "TEXT")


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(_shown, value)) if value else "all"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value
