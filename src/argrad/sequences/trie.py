"""The sequences that were drawn, as a tree, and the share of probability that is left below each node."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Path = tuple[int, ...]


@dataclass
class Gone:
    """What is known about a child that sequences were drawn from."""

    log_p: float  # given its parent
    log_left: float = -math.inf  # log of the share of its probability that is left
    fanout: int = 0  # number of its children that have any probability
    children: dict[int, Gone] = field(default_factory=dict)


class Trie:
    """The sequences drawn from one row, and what is left below each of their beginnings."""

    def __init__(self) -> None:
        self._root = Gone(0.0, 0.0)
        self.fanout: dict[Path, int] = {}  # of the nodes that the present search has opened

    @property
    def log_left(self) -> float:
        """Log of the probability of all sequences that are left."""
        return self._root.log_left

    def children(self, path: Path) -> dict[int, Gone]:
        """The children of a node that sequences were drawn from."""
        node = self._root
        for token in path:
            if token not in node.children:
                return {}
            node = node.children[token]
        return node.children

    def remove(self, path: Path, log_ps: list[float]) -> None:
        """Take a sequence out, given the log-probability of each of its tokens."""
        nodes = [self._root]
        for i, (token, log_p) in enumerate(zip(path, log_ps, strict=True)):
            nodes[-1].fanout = self.fanout[path[:i]]
            nodes.append(nodes[-1].children.setdefault(token, Gone(log_p, 0.0)))
        nodes[-1].log_left = -math.inf
        for node in reversed(nodes[:-1]):
            node.log_left = _log_left(node)


def _log_left(node: Gone) -> float:
    """Log of the share that is left, from what has gone below the children."""
    gone = list(node.children.values())
    if len(gone) == node.fanout and all(g.log_left == -math.inf for g in gone):
        return -math.inf  # exactly: rounding must not leave a ghost
    lost = math.fsum(-math.exp(g.log_p) * math.expm1(g.log_left) for g in gone)
    return math.log1p(-min(lost, 1.0 - 2.0**-53))
