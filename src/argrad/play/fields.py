"""Read what a browser sent: each value is checked against its limits, and a wrong one gets a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from argrad._errors import InputError


@dataclass(frozen=True)
class Fields:
    """The state of a tab, as it came over the wire.

    Args:
        tab: its name, for sentences.
        values: what was sent.

    Examples:
        >>> Fields("simplex", {"tau": 0.5}).number("tau", 0.01, 100)
        0.5
        >>> Fields("simplex", {"tau": -1}).number("tau", 0.01, 100)
        Traceback (most recent call last):
        argrad._errors.InputError: `simplex(tau=...)` must be a number from 0.01 to 100; got -1.
    """

    tab: str
    values: Mapping[str, object]

    def number(self, name: str, low: float, high: float) -> float:
        """A finite number within bounds."""
        value = self.values.get(name)
        if not _is_number(value, low, high):
            raise self._refusal(name, f"must be a number from {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]

    def integer(self, name: str, low: int, high: int) -> int:
        """A whole number within bounds."""
        value = self.values.get(name)
        if not _is_number(value, low, high) or value != int(value):  # type: ignore[call-overload]
            raise self._refusal(name, f"must be a whole number from {low} to {high}")
        return int(value)  # type: ignore[call-overload]

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._refusal(name, "must be true or false")
        return value

    def choice(self, name: str, known: Sequence[str]) -> str:
        """One of some words."""
        value = self.values.get(name)
        if not isinstance(value, str) or value not in known:
            raise self._refusal(name, f"must be one of {', '.join(known)}")
        return value

    def choices(self, name: str, known: Sequence[str]) -> list[str]:
        """Some of some words, at least one, none twice."""
        value = self.values.get(name)
        good = isinstance(value, list) and all(isinstance(v, str) and v in known for v in value)
        if not good or not 1 <= len(set(value)) == len(value):  # type: ignore[arg-type]
            raise self._refusal(name, f"must be a list of different names out of {', '.join(known)}")
        return value  # type: ignore[return-value]

    def vector(self, name: str, shortest: int, longest: int, limit: float = 50.0) -> list[float]:
        """A list of finite numbers."""
        value = self.values.get(name)
        if not _is_vector(value, shortest, longest, limit):
            length = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
            raise self._refusal(
                name, f"must be a list of {length} numbers from {-limit:g} to {limit:g}"
            )
        return value  # type: ignore[return-value]

    def square(self, name: str, shortest: int, longest: int, limit: float = 50.0) -> list[list[float]]:
        """A square matrix of finite numbers."""
        value = self.values.get(name)
        size = len(value) if isinstance(value, list) else -1
        if not shortest <= size <= longest or not all(
            _is_vector(row, size, size, limit)
            for row in value  # type: ignore[union-attr]
        ):
            size_rule = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
            rule = f"must be a square matrix, {size_rule} rows of numbers from {-limit:g} to {limit:g}"
            raise self._refusal(name, rule)
        return value  # type: ignore[return-value]

    def only(self, *names: str) -> None:
        """Refuse what nobody asked for."""
        extra = sorted(set(self.values) - set(names))
        if extra:
            shown = ", ".join(repr(x)[:40] for x in extra[:5])
            raise InputError(f"`{self.tab}` takes {', '.join(names)}; got also {shown}.")

    def _refusal(self, name: str, rule: str) -> InputError:
        if name not in self.values:
            return InputError(f"`{self.tab}({name}=...)` {rule}; it is missing.")
        shown = repr(self.values[name])
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return InputError(f"`{self.tab}({name}=...)` {rule}; got {shown}.")


def _is_number(value: object, low: float, high: float) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    # a huge int compares, though it cannot become a float
    return plain and low <= value <= high and not math.isnan(value)  # type: ignore[operator, arg-type]


def _is_vector(value: object, shortest: int, longest: int, limit: float) -> bool:
    right = isinstance(value, list) and shortest <= len(value) <= longest
    return right and all(_is_number(v, -limit, limit) for v in value)  # type: ignore[union-attr]
