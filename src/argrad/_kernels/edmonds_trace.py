"""Chu-Liu and Edmonds' algorithm with a record of every choice it made.

Grows a path of (super)nodes: the end of the path takes its cheapest arc from outside and pays for it by
lowering all its arcs; meeting the path again contracts the cycle. Each (super)node chooses once.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(error_model="numpy", cache=True)
def _cheapest(cost, member, group, n):
    """The cheapest arc (head, child) into the group from outside; (-1, -1) if there is none."""
    best, head, child = np.inf, -1, -1
    for c in range(n):
        if member[c] == group:
            for h in range(n):
                if member[h] != group and cost[h, c] < best:
                    best, head, child = cost[h, c], h, c
    return best, head, child


@njit(error_model="numpy", cache=True)
def _one(cost, root, sets, arcs, tree):
    """Fill events of one graph: `sets[e, v]` = v in the choosing group, `arcs[e]` = (head, child)."""
    n = cost.shape[0]
    member = np.arange(n)  # group of a node, named by one of its nodes
    state = np.zeros(n, np.int8)  # by group: 0 untouched, 1 on the path, 2 connected to the root
    path = np.empty(n, np.int64)
    state[root] = 2
    events = 0
    for start in range(n):
        depth = 0
        group = member[start]
        while state[group] != 2:
            if state[group] == 1:  # a cycle: contract the path back to this group
                while True:
                    depth -= 1
                    top = path[depth]
                    if top == group:
                        break
                    for v in range(n):
                        if member[v] == top:
                            member[v] = group
            state[group] = 1
            path[depth] = group
            depth += 1
            best, head, child = _cheapest(cost, member, group, n)
            if head < 0:
                return -1
            for v in range(n):
                if member[v] == group:
                    sets[events, v] = True
                    for h in range(n):
                        if member[h] != group:
                            cost[h, v] -= best
            arcs[events, 0], arcs[events, 1] = head, child
            events += 1
            group = member[head]
        for i in range(depth):
            state[path[i]] = 2
    _expand(sets, arcs, events, tree)
    return events


@njit(error_model="numpy", cache=True)
def _expand(sets, arcs, events, tree):
    """The tree: a group's arc is used unless a larger group's arc already enters one of its nodes."""
    n = sets.shape[1]
    entered = np.zeros(n, np.bool_)
    for e in range(events - 1, -1, -1):
        used = True
        for v in range(n):
            if sets[e, v] and entered[v]:
                used = False
        if used:
            tree[arcs[e, 0], arcs[e, 1]] = 1.0
            entered[arcs[e, 1]] = True


@njit(error_model="numpy", nogil=True, cache=True)
def trace(start, stop, cost, root, sets, arcs, trees):
    """Events and trees of graphs `start` to `stop`; `cost` is overwritten. Status 1: no tree."""
    status = 0
    for i in range(start, stop):
        if _one(cost[i], root, sets[i], arcs[i], trees[i]) < 0:
            status = 1
    return status
