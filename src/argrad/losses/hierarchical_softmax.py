r"""Hierarchical softmax: a class is a path of binary decisions in a Huffman tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, logsigmoid

from argrad import random
from argrad._checks import check_count, refuse_meta
from argrad._numerics import rows_of, widen
from argrad._types import Float, Generator, Int
from argrad.class_noise.alias_table import check_weights
from argrad.losses._contrast import check_items, check_loss, logistic
from argrad.losses._huffman import HuffmanTree, huffman_tree


class HierarchicalSoftmax(nn.Module):
    r"""A normalised model of $n$ classes whose log-probability costs $O(\log n)$.

    $$ \log p(y \mid h) = \sum_{v \in \mathrm{path}(y)} \log \sigma\big(\pm\, w_v \cdot h\big) $$
    The inner nodes of a Huffman tree hold the vectors; the sign says whether the path turns right or
    left. It sums to 1 over the classes whatever the parameters are: no noise, no correction. The tree is
    a modelling assumption, and a wrong one costs: classes that share a branch should be alike.

    Args:
        in_features: d, the size of `hidden`.
        counts: how often each class occurs, which makes the tree; frequent classes get short paths.
        sparse: sparse gradients of `weight`.
        options: `device`, `dtype`.

    Examples:
        >>> import torch, argrad as ag
        >>> loss = ag.HierarchicalSoftmax(8, torch.tensor([50.0, 30.0, 15.0, 5.0]))
        >>> hidden, target = torch.randn(32, 8), torch.randint(4, (32,))
        >>> loss(hidden, target).mean().backward()
        >>> torch.allclose(loss.log_probs(hidden).exp().sum(-1), torch.ones(32))
        True
        >>> loss.sample(hidden).shape
        torch.Size([32])

    References: [morin2005], [mnih2009], [huffman1952].
    """

    def __init__(
        self,
        in_features: int,
        counts: Tensor | np.ndarray | Sequence[float],
        *,
        sparse: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        call = "HierarchicalSoftmax"
        d = check_count(call, "in_features", in_features, 1, None, "The size of `hidden`.")
        c = check_weights(call, counts, "counts")
        n = check_count(call, "counts", len(c), 2, None, "There must be something to choose from.")
        self.in_features, self.num_classes, self.sparse = d, n, sparse
        for name, table in huffman_tree(c)._asdict().items():  # made from `counts`: not saved
            self.register_buffer(f"_{name}", table.to(options.get("device")), persistent=False)
        self.weight = nn.Parameter(torch.empty(n - 1, d, **options))
        self.reset_parameters()

    @property
    def tree(self) -> HuffmanTree:
        """The tree's tables."""
        return HuffmanTree(*(getattr(self, f"_{name}") for name in HuffmanTree._fields))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Zeros, as in word2vec: $p(y) = 2^{-\mathrm{depth}(y)}$, about the frequency of the class."""
        self.weight.zero_()

    def forward(
        self, hidden: Float[Tensor, "*batch d"], target: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        r"""$-\log p(y \mid h)$ of each item."""
        check_items("HierarchicalSoftmax", hidden, target, self.in_features, self.num_classes)
        path, sign = (
            rows_of(self.tree.path, target),
            rows_of(self.tree.sign, target),
        )  # (*batch, longest)
        rows = embedding(path, self.weight, sparse=self.sparse)
        scores = widen((rows @ hidden[..., None])[..., 0])
        loss = logistic(scores, sign.to(scores.dtype), sign != 0)
        check_loss("HierarchicalSoftmax", loss, hidden=hidden, weight=self.weight)
        return loss.to(hidden.dtype)

    def log_prob(
        self, hidden: Float[Tensor, "*batch d"], target: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        r"""$\log p(y \mid h)$, exact."""
        return -self.forward(hidden, target)

    def log_probs(self, hidden: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch n"]:
        """Of every class: down the tree, level by level, O(n) an item."""
        refuse_meta("HierarchicalSoftmax.log_probs", "hidden", hidden)
        n, tree = self.num_classes, self.tree
        scores = widen(linear(hidden, self.weight))
        turns = torch.cat([logsigmoid(-scores), logsigmoid(scores)], -1)  # left, then right
        result = scores.new_zeros(*hidden.shape[:-1], 2 * n - 1)
        for depth in range(1, tree.path.shape[1] + 1):
            level = (tree.depth == depth).nonzero()[:, 0]
            above = tree.parent[level]
            step = result[..., above + n] + turns[..., above + (n - 1) * tree.side[level]]
            result = result.index_copy(-1, level, step)
        log_p = result[..., :n].to(hidden.dtype)
        return check_loss("HierarchicalSoftmax.log_probs", log_p, hidden=hidden, weight=self.weight)

    @torch.no_grad()
    def sample(
        self, hidden: Float[Tensor, "*batch d"], *, generator: Generator = None
    ) -> Int[Tensor, "*batch"]:
        """One class for each item, by walking down the tree: O(depth)."""
        refuse_meta("HierarchicalSoftmax.sample", "hidden", hidden)
        n, tree = self.num_classes, self.tree
        node = torch.full(hidden.shape[:-1], 2 * n - 2, device=hidden.device)
        options: dict[str, Any] = {"dtype": torch.float64, "device": hidden.device}
        for source in random.split(generator, tree.path.shape[1]):
            inner = (node - n).clamp(min=0)
            right = widen((self.weight[inner] * hidden).sum(-1)).double().sigmoid()
            side = random.uniform(node.shape, generator=source, **options) < right
            node = torch.where(node < n, node, tree.children[inner, side.long()])
        return node

    def extra_repr(self) -> str:
        """Settings that are not submodules."""
        return f"{self.in_features}, {self.num_classes} classes, paths to {self.tree.path.shape[1]}"
