r"""Noise that belongs to a node of the tree, not to a moment of the search.

Each node gets a 64-bit name, a hash of its row and its tokens; the Gumbel of a child is a hash of (key,
name of the parent, token). So a sample depends on the seed, the row and the model's probabilities alone:
not on the beam's order, on what else is in the batch, on the number of threads or on the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from argrad import random
from argrad._counter import GOLDEN, ROW_2
from argrad._hash import gumbel, splitmix, times, uniform, word
from argrad._types import Generator


class Key(NamedTuple):
    """Two 64-bit words, and the number of the first row."""

    words: Tensor
    row: int

    @property
    def array(self) -> np.ndarray:
        """The words for the CPU kernels."""
        return self.words.cpu().numpy().view(np.uint64)


def draw_key(call: str, generator: Generator) -> Key:
    """Everything that one call takes from its generator."""
    random.check_generator(call, generator)
    if isinstance(generator, random.CounterRNG):
        return Key(generator.words[:2].clone(), generator.row)
    return Key(random.draw_key(generator), 0)


def root_nodes(key: Key, rows: Tensor, tree: int = 0) -> Tensor:
    """Names `(batch, 1)` of the roots of rows with these numbers; another `tree` has other noise."""
    row = (rows + key.row)[:, None]
    return child_nodes(splitmix(times(row, GOLDEN)), torch.full_like(row, tree))


def child_nodes(nodes: Tensor, tokens: Tensor) -> Tensor:
    """Names of the nodes that `tokens` lead to."""
    return splitmix(times(nodes, GOLDEN) ^ times(tokens + 1, ROW_2))


def gumbel_at(key: Key, nodes: Tensor, tokens: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """The Gumbels of children `tokens` of `nodes` (which broadcast)."""
    return gumbel(_bits(key, nodes, tokens), dtype)


def uniform_at(key: Key, nodes: Tensor, tokens: Tensor) -> Tensor:
    """A uniform number in the same place."""
    return uniform(_bits(key, nodes, tokens), torch.float64)


def _bits(key: Key, nodes: Tensor, tokens: Tensor) -> Tensor:
    first, second = key.words.tolist()
    k1, k2 = splitmix(times(nodes ^ first, GOLDEN)), splitmix(times(nodes ^ second, ROW_2))
    return word(k1, k2, tokens)
