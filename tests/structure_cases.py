"""Every structure with a small event, its regularizers, and a mask that leaves something to choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import argrad as ag


@dataclass(frozen=True)
class StructureCase:
    """One line of the list.

    Attributes:
        name: for test ids.
        structure: under test.
        event: shape of one item's scores, small enough to enumerate.
        mask: True = allowed, shape of the event.
        regularizers: all that `relax` solves.
        flip: index of a (flattened) part whose change leaves the set.
        flip_stays: the change may stay in the set (then it is not checked).
        can_be_infeasible: an all-False mask leaves nothing.
    """

    name: str
    structure: ag.Structure
    event: tuple[int, ...]
    mask: Tensor
    regularizers: tuple[ag.Regularizer, ...]
    flip: int = 1
    flip_stays: bool = False
    can_be_infeasible: bool = True


def _mask(*event: int, closed: list[tuple[int, ...]]) -> Tensor:
    mask = torch.ones(event, dtype=torch.bool)
    for place in closed:
        mask[place] = False
    return mask


FAMILY = (ag.ExponentialFamily(),)
CAPPED = (ag.ExponentialFamily(), ag.BinaryEntropy(), ag.Entropy(), ag.Euclidean(), ag.Tsallis(1.5))
SIMPLEX = (
    ag.Entropy(),
    ag.ExponentialFamily(),
    ag.Euclidean(),
    ag.Tsallis(1.5),
    ag.Tsallis(1.3),
    ag.BinaryEntropy(),
)
TREE_MASK = _mask(4, 4, closed=[(0, 2), (2, 0)])

STRUCTURES = [
    StructureCase("OneHot", ag.OneHot(), (5,), _mask(5, closed=[(2,)]), SIMPLEX),
    StructureCase("OneHot-1", ag.OneHot(), (1,), _mask(1, closed=[]), SIMPLEX, flip=0),
    StructureCase(
        "Bits",
        ag.Bits(),
        (4,),
        _mask(4, closed=[(1,)]),
        (ag.BinaryEntropy(), ag.ExponentialFamily(), ag.Euclidean()),
    ),
    StructureCase(
        "Subset-2", ag.Subset(2), (5,), _mask(5, closed=[(3,)]), (*CAPPED, ag.SuccessiveSoftmax())
    ),
    StructureCase(
        "Subset-0", ag.Subset(0), (3,), _mask(3, closed=[(0,)]), CAPPED, can_be_infeasible=False
    ),
    StructureCase("Subset-all", ag.Subset(3), (3,), _mask(3, closed=[]), CAPPED),
    StructureCase(
        "Subset-at-most",
        ag.Subset(2, at_most=True),
        (4,),
        _mask(4, closed=[(1,)]),
        CAPPED,
        flip_stays=True,
        can_be_infeasible=False,
    ),
    StructureCase("ChainSubset", ag.ChainSubset(2), (9,), _mask(9, closed=[(4,), (5,)]), FAMILY),
    StructureCase(
        "Permutation",
        ag.Permutation(),
        (4, 4),
        _mask(4, 4, closed=[(0, 1), (2, 3)]),
        (ag.Entropy(), ag.Euclidean()),
    ),
    StructureCase(
        "Matching", ag.Matching(), (2, 4), _mask(2, 4, closed=[(0, 1)]), (ag.Entropy(), ag.Euclidean())
    ),
    StructureCase(
        "Matching-partial",
        ag.Matching(partial=True),
        (2, 3),
        _mask(2, 3, closed=[(0, 1)]),
        (ag.Entropy(), ag.Euclidean()),
        flip_stays=True,
        can_be_infeasible=False,
    ),
    StructureCase("SpanningTree", ag.SpanningTree(), (4, 4), TREE_MASK, FAMILY),
    StructureCase("Arborescence", ag.Arborescence(), (4, 4), TREE_MASK, FAMILY),
    StructureCase("Arborescence-root-2", ag.Arborescence(root=2), (4, 4), TREE_MASK, FAMILY),
    StructureCase("Arborescence-single", ag.Arborescence(single_root=True), (4, 4), TREE_MASK, FAMILY),
    StructureCase("Arborescence-free", ag.Arborescence(root=None), (4, 4), TREE_MASK, FAMILY),
    StructureCase("Chain", ag.Chain(), (3, 2, 2), _mask(3, 2, 2, closed=[(1, 0, 1)]), FAMILY),
]
