"""Huffman trees: frequent classes get short codes. Linear time after sorting."""

from __future__ import annotations

from numba import njit


@njit(error_model="numpy", nogil=True, cache=True)
def build(weights, order, parent, right, depth):
    """Join the two lightest nodes until one is left.

    Nodes 0 ... n-1 are classes and n ... 2n-2 inner nodes in the order they are made, which is that of
    their weights: two queues suffice. Node 2n-2 is the root. `parent`, `right` (whether a node is the
    right child) and `depth` have 2n-1 entries; `weights` too, of which the first n are given; `order`
    sorts those.
    """
    n = order.shape[0]
    leaf, inner = 0, n
    for node in range(n, 2 * n - 1):
        weights[node] = 0.0
        for side in range(2):
            if inner == node or (leaf < n and weights[order[leaf]] <= weights[inner]):
                child = order[leaf]
                leaf += 1
            else:
                child = inner
                inner += 1
            parent[child] = node
            right[child] = side
            weights[node] += weights[child]
    root = 2 * n - 2
    parent[root], right[root], depth[root] = -1, 0, 0
    for node in range(root - 1, -1, -1):  # a parent has the higher number
        depth[node] = depth[parent[node]] + 1


@njit(error_model="numpy", nogil=True, cache=True)
def write_paths(parent, right, depth, nodes, signs):
    """The way from the root to each class: inner nodes (numbered from 0), and +1 / -1 for right / left.

    Behind the end of a path `signs` is 0.
    """
    n = nodes.shape[0]
    for leaf in range(n):
        node, place = leaf, depth[leaf]
        for j in range(place, nodes.shape[1]):
            nodes[leaf, j] = 0
            signs[leaf, j] = 0
        while place > 0:
            place -= 1
            signs[leaf, place] = 1 if right[node] else -1
            node = parent[node]
            nodes[leaf, place] = node - n
