"""Slow, certain answers about trees: enumeration for small graphs, 200 digits for larger ones."""

from __future__ import annotations

import itertools
import math

import mpmath
import torch
from torch import Tensor

# (root, single_root) as the solvers take them
ROOTS = [(0, False), (2, False), (None, False), (0, True), (1, True)]


def arborescences(n: int, root: int | None, single_root: bool = False) -> Tensor:
    """All of them, `(count, n, n)`, entry [head, child]."""
    roots = range(n) if root is None else [root]
    trees = [t for r in roots for t in _rooted_at(n, r, single_root)]
    return torch.stack(trees) if trees else torch.zeros(0, n, n, dtype=torch.float64)


def _rooted_at(n: int, root: int, single_root: bool) -> list[Tensor]:
    others = [v for v in range(n) if v != root]
    trees = []
    for choice in itertools.product(range(n), repeat=n - 1):
        head = dict(zip(others, choice, strict=True))
        if single_root and choice.count(root) != 1:
            continue
        if all(_reaches(v, head, root, n) for v in others):
            tree = torch.zeros(n, n, dtype=torch.float64)
            for child, h in head.items():
                tree[h, child] = 1.0
            trees.append(tree)
    return trees


def _reaches(v: int, head: dict[int, int], root: int, n: int) -> bool:
    for _ in range(n):
        if v == root:
            return True
        v = head[v]
    return v == root


def spanning_trees(n: int) -> Tensor:
    """All undirected ones, symmetric."""
    directed = arborescences(n, 0)
    return directed + directed.mT


def tree_scores(trees: Tensor, scores: Tensor) -> Tensor:
    """Sum of the scores of each tree's arcs; -inf if one is forbidden."""
    return torch.where(trees > 0, scores.double(), 0.0).sum((-2, -1))


def law(trees: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """log Z and the trees' probabilities."""
    s = tree_scores(trees, scores)
    return s.logsumexp(0), s.softmax(0)


def high_precision(scores: Tensor, direction: Tensor) -> tuple[float, Tensor, Tensor]:
    """log Z, marginals and Hessian product, rooted at node 0, by the inverse Laplacian in 400 digits."""
    n = scores.shape[-1]
    with mpmath.workdps(400):
        w = mpmath.matrix(n)
        dw = mpmath.matrix(n)
        for i, j in itertools.permutations(range(n), 2):
            if j > 0 and scores[i, j] > -math.inf:
                w[i, j] = mpmath.exp(scores[i, j].item())
                dw[i, j] = w[i, j] * direction[i, j].item()
        L, dL = _laplacian(w), _laplacian(dw)
        M = L**-1
        dM = -(M * dL * M)
        mu, product = (torch.zeros(n, n, dtype=torch.float64) for _ in range(2))
        for i, j in itertools.permutations(range(n), 2):
            if j > 0:
                d = M[j - 1, j - 1] - (M[j - 1, i - 1] if i else 0)
                dd = dM[j - 1, j - 1] - (dM[j - 1, i - 1] if i else 0)
                mu[i, j] = float(w[i, j] * d)
                product[i, j] = float(dw[i, j] * d + w[i, j] * dd)
        return float(mpmath.log(mpmath.det(L))), mu, product


def _laplacian(w: mpmath.matrix) -> mpmath.matrix:
    """Of the nodes but the root: arcs into a node on the diagonal, minus arcs between nodes."""
    n = w.rows
    L = mpmath.matrix(n - 1)
    for i in range(n):
        for j in range(1, n):
            L[j - 1, j - 1] += w[i, j]
            if i > 0:
                L[i - 1, j - 1] -= w[i, j]
    return L
