r"""Maximum spanning arborescences of dense graphs, O(m^2) each (Chu-Liu/Edmonds as in [tarjan1977]).

A path grows backwards from a node along best incoming arcs. Where it meets the root or a finished node,
the path is finished; where it meets itself, the cycle becomes one node: the best arc of each member is
subtracted from the member's other arcs, and rows and columns are merged by maxima. Undoing the
contractions from the last to the first gives each node its head.

A graph comes as `arcs[head, child]`, root row first; `t[child, head]` is its working copy, in which a
merged node lives on at the place of its first member. With `single` a root arc is taken only when no other
is left: the order (fewest root arcs, largest score), for which the algorithm is as exact as for scores.
"""

from __future__ import annotations

import numpy as np
from numba import njit

NEW, ON_PATH, DONE = 0, 1, 2


@njit(error_model="numpy", cache=True)
def _load(arcs, t, arc):
    """`t` = arcs transposed without a diagonal; `arc` = the number of each arc, head * m + child."""
    m = arcs.shape[1]
    for v in range(m):
        for h in range(m + 1):
            t[v, h] = arcs[h, v]
            arc[v, h] = h * m + v
        t[v, v + 1] = -np.inf


@njit(error_model="numpy", cache=True)
def _best_head(row, single):
    """The head of the best arc (the first of equals), or -1."""
    best, value = -1, -np.inf
    for h in range(1 if single else 0, row.shape[0]):
        if row[h] > value:
            best, value = h, row[h]
    return 0 if best < 0 and row[0] > -np.inf else best


@njit(error_model="numpy", cache=True)
def _merge(t, arc, cycle, value):
    """Contract the nodes of `cycle` into its first; `value[v]` is the score of v's best arc."""
    m = t.shape[0]
    first = cycle[0]
    for v in cycle:
        t[v] -= value[v]
    for v in cycle[1:]:
        for h in range(m + 1):  # arcs into the cycle
            if t[v, h] > t[first, h]:
                t[first, h], arc[first, h] = t[v, h], arc[v, h]
        for j in range(m):  # arcs out of it
            if t[j, v + 1] > t[j, first + 1]:
                t[j, first + 1], arc[j, first + 1] = t[j, v + 1], arc[j, v + 1]
            t[j, v + 1] = -np.inf
    t[first, first + 1] = -np.inf


@njit(error_model="numpy", cache=True)
def _position(path, length, v):
    s = length - 1
    while path[s] != v:
        s -= 1
    return s


@njit(error_model="numpy", cache=True)
def _contract(t, arc, single, path, place, parent, entry):
    """Give every node its best arc, contracting cycles; returns the number of nodes made, or -1.

    Nodes are named 0 to m - 1, merged ones from m on. `entry[name]` is the node's best arc,
    `parent[name]` the merged node that it became part of. `place` is scratch.
    """
    m = t.shape[0]
    name, state, names = place[0], place[1], m
    name[:] = np.arange(m)
    state[:] = NEW
    value = np.empty(m)
    for start in range(m):
        length = 0
        if state[start] == NEW:
            path[0], state[start], length = start, ON_PATH, 1
        while length > 0:
            v = path[length - 1]
            h = _best_head(t[v], single)
            if h < 0:
                return -1
            value[v] = t[v, h]
            entry[name[v]] = arc[v, h]
            if h == 0 or state[h - 1] == DONE:
                state[path[:length]] = DONE
                length = 0
            elif state[h - 1] == NEW:
                path[length], state[h - 1] = h - 1, ON_PATH
                length += 1
            else:
                s = _position(path, length, h - 1)
                _merge(t, arc, path[s:length], value)
                parent[name[path[s:length]]] = names
                name[path[s]] = names
                state[path[s + 1 : length]] = DONE
                names += 1
                length = s + 1
    return names


@njit(error_model="numpy", cache=True)
def _expand(names, parent, entry, head):
    """Hand each merged node's arc down to the member it enters; the others keep their own."""
    m = head.shape[0]
    for name in range(names - 1, m - 1, -1):
        member = entry[name] % m
        while parent[member] != name:
            member = parent[member]
        entry[member] = entry[name]
    for v in range(m):
        head[v] = entry[v] // m


@njit(error_model="numpy", nogil=True, cache=True)
def edmonds(start, stop, arcs, single, heads):
    """heads[g, v] = the head of child v in the best arborescence; all -1 if there is none."""
    m = arcs.shape[2]
    t, arc = np.empty((m, m + 1)), np.empty((m, m + 1), np.int64)
    path, place = np.empty(m, np.int64), np.empty((2, m), np.int64)
    parent, entry = np.empty(2 * m, np.int64), np.empty(2 * m, np.int64)
    for g in range(start, stop):
        _load(arcs[g], t, arc)
        names = _contract(t, arc, single, path, place, parent, entry)
        if names >= 0:
            _expand(names, parent, entry, heads[g])
        if names < 0 or (single and (heads[g] == 0).sum() != 1):
            heads[g] = -1
    return 0
