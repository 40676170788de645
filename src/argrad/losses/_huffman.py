"""The Huffman tree of class counts, as the tables that a hierarchical softmax reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from argrad._types import Int


class HuffmanTree(NamedTuple):
    """Nodes 0 ... n-1 are the classes, n ... 2n-2 the inner nodes; the last is the root.

    Attributes:
        path: inner nodes (less n) from the root to each class, `(n, longest)`.
        sign: the turn taken there: 1 right, -1 left, 0 behind the path's end; `(n, longest)`, int8.
        parent: of each node but the root, less n; `(2n-2,)`.
        side: 1 if a node is the right child of its parent; `(2n-2,)`.
        depth: of each node but the root; `(2n-2,)`.
        children: of each inner node, left and right; `(n-1, 2)`.
    """

    path: Int[Tensor, "n longest"]
    sign: Int[Tensor, "n longest"]
    parent: Int[Tensor, "nodes"]
    side: Int[Tensor, "nodes"]
    depth: Int[Tensor, "nodes"]
    children: Int[Tensor, "inner 2"]


def huffman_tree(counts: np.ndarray) -> HuffmanTree:
    """Build it from two or more non-negative numbers."""
    from argrad._kernels import huffman

    n = len(counts)
    weights = np.concatenate([counts, np.empty(n - 1)])
    parent, side, depth = (np.empty(2 * n - 1, np.int64) for _ in range(3))
    huffman.build(weights, np.argsort(counts, kind="stable"), parent, side, depth)
    longest = int(depth[:n].max())
    path, sign = np.empty((n, longest), np.int32), np.empty((n, longest), np.int8)
    huffman.write_paths(parent, side, depth, path, sign)
    children = np.empty((n - 1, 2), np.int64)
    children[parent[:-1] - n, side[:-1]] = np.arange(2 * n - 2)
    tables = (path, sign, parent[:-1] - n, side[:-1], depth[:-1], children)
    return HuffmanTree(*(torch.from_numpy(table) for table in tables))
