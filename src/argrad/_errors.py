"""Exceptions and warnings. Each also inherits from the built-in class a user would catch."""

from __future__ import annotations


class ArgradError(Exception):
    """Base class of everything argrad raises on purpose."""


class InputError(ArgradError, ValueError):
    """A value, shape or combination of arguments that cannot be answered."""


class InputTypeError(ArgradError, TypeError):
    """An argument of the wrong type or dtype."""


class UnsupportedError(ArgradError, NotImplementedError):
    """A question that has no (tractable) answer here; the message names an alternative."""


class ConvergenceError(ArgradError, RuntimeError):
    """An iterative solver stopped before its tolerance was met."""


class ArgradWarning(UserWarning):
    """Base class of argrad's warnings."""


class ConvergenceWarning(ArgradWarning):
    """A solver's answer is usable, but less accurate than asked for; the message has the residual."""
