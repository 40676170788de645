"""How a result is written, in the terminal and on the page of the documentation."""

from __future__ import annotations

from typing import Any

SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0}
COLUMNS = ("line", "threads", "ours", "peer", "by best", "by median", "goal", "", "the peer")


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    """The text of each of `COLUMNS`, from the JSON form of a result."""
    ours, peer, goal = result["ours"], result["peer"], result["goal"] or "-"
    if ours is None:
        measured = ("-",) * 4
    else:
        measured = (
            _time(ours["best"], result["unit"]),
            _time(peer["best"], result["unit"]),
            _compare(ours["best"], peer["best"], goal),
            _compare(ours["median"], peer["median"], goal),
        )
    return (
        result["name"],
        str(result["threads"]),
        *measured,
        goal,
        result["status"],
        result["peer_name"],
    )


def _time(seconds: float, unit: str) -> str:
    value = seconds * SCALE[unit]
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def _compare(ours: float, peer: float, goal: str) -> str:
    """A ratio; a difference in seconds when that is what the goal speaks of."""
    return f"{ours - peer:+.3f} s" if "+" in goal else f"{peer / ours:.2f}x"
