"""How a result is written, in the terminal and on the page of the documentation."""

from __future__ import annotations

from typing import Any

SCALE = {"us": 1e6, "ms": 1e3, "s": 1.0, "cpu s": 1.0, "MB": 1.0}
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
            _compare(ours["best"], peer["best"], result),
            _compare(ours["median"], peer["median"], result),
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


def _compare(ours: float, peer: float, result: dict[str, Any]) -> str:
    """A ratio; a difference in seconds when that is what the goal speaks of."""
    if "+" in (result["goal"] or ""):
        return f"{ours - peer:+.3f} {result['unit']}"
    return f"{peer / ours:.2f}x"


def warn_if_busy(machine: dict[str, Any]) -> str:
    """A sentence when others used the processor at the start of the run; empty when not."""
    load, cores = machine["load_average"][0], machine["cores"]
    if load < cores:
        return ""
    return (
        f"The machine was busy (load {load} on {cores} cores): as many threads as cores wait for each other, "
        "so those figures say little."
    )
