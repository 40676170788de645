"""A frozen dataclass is the configuration of a recipe and its command line.

Each field is an `option`, so its default, its type and its help are written once:

    @dataclass(frozen=True, kw_only=True)
    class Config:
        data: Literal["digits", "mnist"] = option("mnist", "which images")
        steps: int = option(100_000, "training steps a cell", at_least=1)
        columns: tuple[str, ...] = option((), "only these columns", selects=True)

A type is `int`, `float`, `bool`, `str`, a `Literal` of texts, `T | None`, or `tuple[T, ...]` of one of these.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import typing
from collections.abc import Iterator, Mapping
from typing import Any, get_origin

from argrad._errors import InputError
from argrad.recipes.bench.values import as_text, metavar, reader, validate


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
    for field, kind in _fields(type(config)):
        shared: dict[str, Any] = {
            "default": argparse.SUPPRESS,
            "help": f"{field.metadata['help']} ({as_text(getattr(config, field.name))})".replace(
                "%", "%%"
            ),
        }
        if kind is bool:
            parser.add_argument(_flag(field.name), action=argparse.BooleanOptionalAction, **shared)
        else:
            read = reader(kind, field.metadata)
            parser.add_argument(_flag(field.name), type=read, metavar=metavar(kind), **shared)


def add_grid_flags(parser: argparse._ActionsContainer, config: Any) -> None:
    """One flag for every field that takes several values, commas between them; `--estimator` chooses columns."""
    for field, kind in _fields(type(config)):
        words = [_flag(field.name)] + (["--estimator"] if field.name == "columns" else [])
        several = kind if get_origin(kind) is tuple else tuple[str if kind is bool else kind, ...]
        shared: dict[str, Any] = {"default": argparse.SUPPRESS, "dest": field.name}
        parser.add_argument(
            *words,
            type=reader(several, field.metadata),
            metavar=metavar(several),
            help=f"{field.metadata['help']}".replace("%", "%%"),
            **shared,
        )


def split_grid(config: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What is the same in all trials, and what varies with its values.

    A tuple option (columns, rows) is one value: its items are cells of every trial's table.
    """
    fixed, grid = {}, {}
    kinds = {field.name: kind for field, kind in _fields(type(config))}
    for name, values in given.items():
        if kinds[name] is bool:
            values = tuple(_truth(name, value) for value in values)
        if get_origin(kinds[name]) is tuple:
            fixed[name] = values
        elif len(values) == 1:
            fixed[name] = values[0]
        else:
            grid[name] = list(values)
    return fixed, grid


def _truth(name: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise InputError(f"`{_flag(name)}` must be yes, no, or yes,no; got {text!r}.")
    return text == "yes"


def changed(config: Any, values: dict[str, Any]) -> Any:
    """The configuration with some fields replaced; an unknown name is a sentence."""
    known = [f.name for f in dataclasses.fields(config)]
    for name in values:
        if name not in known:
            raise InputError(f"there is no option {name!r}; there are {', '.join(known)}.")
    return dataclasses.replace(config, **values)


def check(config: Any) -> None:
    """A sentence for the first value that its flag would not have let pass."""
    for field, kind in _fields(type(config)):
        value = getattr(config, field.name)
        try:
            validate(kind, value, field.metadata)
        except ValueError as error:
            raise InputError(f"`{_flag(field.name)}` {error}.") from None


def as_dict(config: Any, *, selection: bool = True) -> dict[str, Any]:
    """The configuration ready for JSON; without `selection`, only what changes how a cell is trained."""
    fields = [f for f in dataclasses.fields(config) if selection or not f.metadata["selects"]]
    return {f.name: _plain(getattr(config, f.name)) for f in fields}


def from_dict(kind: type, values: Mapping[str, Any]) -> Any:
    """The inverse of `as_dict`."""
    tuples = {field.name for field, hint in _fields(kind) if get_origin(hint) is tuple}
    return kind(**{k: tuple(v) if k in tuples else v for k, v in values.items()})


def differing_flags(config: Any, preset: Any) -> list[str]:
    """The words that turn `preset` into `config`, as one would type them in a shell."""
    words = []
    for field in dataclasses.fields(config):
        value, flag = getattr(config, field.name), _flag(field.name)
        if value == getattr(preset, field.name):
            continue
        text = as_text(value)
        if isinstance(value, bool):
            words.append(flag if value else _flag(f"no_{field.name}"))
        elif text.startswith("-"):  # alone it would look like a flag
            words.append(shlex.quote(f"{flag}={text}"))
        else:
            words += [flag, shlex.quote(text)]
    return words


def _fields(kind: type) -> Iterator[tuple[dataclasses.Field, Any]]:
    """Each field with its type."""
    hints = typing.get_type_hints(kind)
    return ((field, hints[field.name]) for field in dataclasses.fields(kind))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (tuple, list)) else value
