"""The nodes that a search looks at, and the loop that takes them down the tree, one level at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from argrad.sequences.decoder import Decoder, Front
from argrad.sequences.nodes import child_nodes


@dataclass(frozen=True, kw_only=True)
class Beam:
    """m nodes a row, `(batch, m)` each, the largest `perturbed` first; where that is -inf there is none.

    Attributes:
        tokens: the way to the node, `(batch, m, t)`; padded behind its end.
        token_log_prob: log-probability of each of them given those before it, `(batch, m, t)`.
        length: number of tokens up to the end.
        log_prob: of the node, the sum over its tokens.
        mass: log of the probability of the leaves below it that can still be drawn.
        perturbed: the largest perturbed log-probability of these leaves.
        node: its name (see `nodes.py`).
        finished: it is a complete sequence.
        kappa: the largest value among all nodes that were dropped on the way, `(batch,)`.
    """

    tokens: Tensor
    token_log_prob: Tensor
    length: Tensor
    log_prob: Tensor
    mass: Tensor
    perturbed: Tensor
    node: Tensor
    finished: Tensor
    kappa: Tensor

    @property
    def valid(self) -> Tensor:
        """There is a node."""
        return self.perturbed > -math.inf

    @property
    def is_open(self) -> Tensor:
        """It has children."""
        return self.valid & ~self.finished


class Children(NamedTuple):
    """Some children of each node, `(batch, m, count)`; `perturbed` is -inf where there is none."""

    tokens: Tensor
    log_prob: Tensor
    mass: Tensor
    perturbed: Tensor


# What a search does at a node: (name of the call, beam, logits, how many children) -> the best children
Expand: TypeAlias = Callable[[str, Beam, Tensor, int], Children]


def root_beam(node: Tensor, mass: Tensor, perturbed: Tensor) -> Beam:
    """The root of each row, `(batch, 1)`."""
    zero = torch.zeros_like(node)
    return Beam(
        tokens=node.new_empty(*node.shape, 0),
        token_log_prob=mass.new_empty(*node.shape, 0),
        length=zero,
        log_prob=torch.zeros_like(mass),
        mass=mass,
        perturbed=perturbed,
        node=node,
        finished=zero.bool(),
        kappa=torch.full_like(mass[:, 0], -math.inf),
    )


def search(decoder: Decoder, front: Front, beam: Beam, k: int, expand: Expand) -> Beam:
    r"""The k leaves of each row with the largest perturbed values.

    A node's value is the largest among its leaves, so whoever is not among the k best nodes of a level
    has no leaf among the k best. What is dropped is remembered by its largest value: after the last
    level that is $\kappa$, the largest value of all leaves that are not in the beam.
    """
    for time in range(decoder.max_len):
        count = min(k + 1, front.logits.shape[-1])
        children = expand(decoder.call, beam, front.logits, count)
        beam, parents = _descend(decoder, beam, children, k)
        if time + 1 == decoder.max_len or not bool(beam.is_open.any()):
            break
        front = decoder.next(front, parents, beam.tokens)
    return beam


def _descend(decoder: Decoder, beam: Beam, children: Children, k: int) -> tuple[Beam, Tensor]:
    """The k best of all children and of the complete sequences; and the parent of each, `(batch, k)`."""
    values = children.perturbed.clone()
    # a complete sequence is its own only child
    values[..., 0] = torch.where(beam.finished, beam.perturbed, values[..., 0])
    count, most = values.shape[-1], values.shape[1] * values.shape[2]
    values = torch.nn.functional.pad(values.flatten(1), (0, max(k + 1 - most, 0)), value=-math.inf)
    perturbed, place = values.topk(k + 1, -1)
    kappa = torch.maximum(beam.kappa, perturbed[:, k])
    perturbed, place = perturbed[:, :k], place[:, :k].clamp(max=most - 1)
    parents, valid = place // count, perturbed > -math.inf

    def of_child(x: Tensor) -> Tensor:
        return x.flatten(1).gather(1, place)

    def of_parent(x: Tensor) -> Tensor:
        index = parents if x.dim() == 2 else parents[..., None].expand(-1, -1, x.shape[-1])
        return x.gather(1, index)

    old = of_parent(beam.finished)
    grows = valid & ~old
    token = of_child(children.tokens).where(grows, decoder.pad)
    tokens = torch.cat([of_parent(beam.tokens), token[..., None]], -1)
    log_prob = of_child(children.log_prob).where(grows, of_parent(beam.log_prob))
    gain = (log_prob - of_parent(beam.log_prob)).where(grows, 0.0)
    return Beam(
        tokens=tokens,
        token_log_prob=torch.cat([of_parent(beam.token_log_prob), gain[..., None]], -1),
        length=of_parent(beam.length) + grows,
        log_prob=log_prob,
        mass=of_child(children.mass).where(grows, of_parent(beam.mass)),
        perturbed=perturbed,
        node=child_nodes(of_parent(beam.node), token).where(grows, of_parent(beam.node)),
        finished=old | (decoder.ends(tokens) & valid),
        kappa=kappa,
    ), parents
