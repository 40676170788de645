r"""The contract of a structure, checked by enumeration of a small case."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from argrad._types import Shape
from argrad.regularizers import Regularizer
from argrad.structures.base import Structure
from argrad.testing.parts import check_generator_contract
from argrad.testing.statistics import assert_frequencies

F64 = torch.float64
CLOSE = 1e-9  # float64 sums of at most thousands of terms


def check_structure(
    structure: Structure,
    event_shape: Shape,
    *,
    regularizers: Sequence[Regularizer] | None = None,
) -> None:
    r"""A structure answers as enumeration does: arg max, masks, relaxations, log-partition, marginals, samples.

    Args:
        structure: what you wrote.
        event_shape: of one item's scores, small enough to list all objects (up to a few thousand).
        regularizers: which relaxations to check; default its `default_regularizer`, if `relax` solves it.

    Examples:
        >>> import argrad as ag
        >>> ag.testing.check_structure(ag.SpanningTree(), (4, 4))
        >>> ag.testing.check_structure(ag.Subset(2), (4,), regularizers=[ag.Euclidean(), ag.Entropy()])
    """
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 4, *event_shape, dtype=F64, generator=g)
    vertices = structure.enumerate(event_shape, dtype=F64)
    _check_set(structure, vertices)
    _check_argmax(structure, scores, vertices)
    _check_mask(structure, scores, vertices)
    if regularizers is None:
        default = structure.default_regularizer
        regularizers = [default] if type(default) in structure._relaxations(1.0) else []
    for regularizer in regularizers:
        _check_relaxation(structure, scores, regularizer)
    if structure.has_log_partition:
        _check_family(structure, scores, vertices)
        _check_sampler(structure, scores[0, 0], vertices)


def _totals(structure: Structure, scores: Tensor, vertices: Tensor) -> Tensor:
    """The score of every vertex, `(count, *batch)`."""
    batch = scores.shape[: scores.dim() - structure.event_dims]
    event = scores.shape[len(batch) :]
    spread = vertices.reshape(-1, *(1,) * len(batch), *event).expand(-1, *batch, *event)
    return structure._inner(scores, spread)


def _assert_close(what: str, found: Tensor, wanted: Tensor) -> None:
    gap = (found - wanted).abs().max().item()
    limit = CLOSE * (1 + wanted.abs().max().item())
    assert gap <= limit, f"{what} is {gap:.3g} away from what enumeration gives"


def _check_set(structure: Structure, vertices: Tensor) -> None:
    event = vertices.shape[1:]
    distinct = {tuple(v.flatten().tolist()) for v in vertices}
    assert len(vertices) == structure.count(event) == len(distinct), (
        f"{len(vertices)} listed, {len(distinct)} of them distinct, {structure.count(event)} counted"
    )
    assert bool(structure.contains(vertices).all()), "`contains` refuses an object that was listed"
    middle = torch.full((1, *event), 0.5, dtype=F64)
    assert not bool(structure.contains(middle).any()), "`contains` accepts a half"


def _check_argmax(structure: Structure, scores: Tensor, vertices: Tensor) -> None:
    best = structure.argmax(scores)
    assert bool(structure.contains(best).all()), "the arg max is not an object of the structure"
    own, wanted = structure._inner(scores, best), _totals(structure, scores, vertices).amax(0)
    _assert_close("the score of the arg max", own, wanted)
    for i, j in itertools.product(range(3), range(4)):
        assert torch.equal(structure.argmax(scores[i, j]), best[i, j]), "a batch is not its items"
    assert structure.argmax(scores[:0]).shape == scores[:0].shape
    assert structure.argmax(scores.to(torch.bfloat16)).dtype == torch.bfloat16


def _check_mask(structure: Structure, scores: Tensor, vertices: Tensor) -> None:
    """Forbid each part in turn, where an object without it remains."""
    for part in range(vertices[0].numel()):
        kept = vertices[vertices.flatten(1)[:, part] == 0]
        if 0 < len(kept) < len(vertices):
            mask = torch.ones(vertices.shape[1:], dtype=torch.bool)
            mask.view(-1)[part] = False
            if structure.inner_weight != 1:
                mask = mask & mask.mT  # an edge stands twice
            best = structure.argmax(scores, mask=mask)
            wanted = _totals(structure, scores, kept).amax(0)
            _assert_close("the masked score", structure._inner(scores, best), wanted)
            assert bool((best[..., ~mask] == 0).all()), "a forbidden part was chosen"


def _check_relaxation(structure: Structure, scores: Tensor, regularizer: Regularizer) -> None:
    """Tends to the arg max, shares its sums with the objects, and has the gradient that it claims."""
    hard = structure.argmax(scores)
    gap = (structure.relax(scores, 1e-4, regularizer=regularizer) - hard).abs().max()
    assert gap < 1e-4, f"at tau = 1e-4 {regularizer!r} is {gap:.2g} from the arg max"
    leaf = scores[0, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: structure.relax(x, 0.7, regularizer=regularizer), leaf)


def _check_family(structure: Structure, scores: Tensor, vertices: Tensor) -> None:
    """Log-partition, marginals, entropy, log-probability."""
    totals = _totals(structure, scores, vertices)
    log_z = totals.logsumexp(0)
    p = (totals - log_z).exp()
    _assert_close("log_partition", structure.log_partition(scores), log_z)
    mean = torch.einsum("cb,ce->be", p.flatten(1), vertices.flatten(1)).reshape(scores.shape)
    _assert_close("marginals", structure.marginals(scores), mean)
    _assert_close("entropy", structure.entropy(scores), -(p * p.log()).sum(0))
    leaf = scores[0, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(structure.log_partition, leaf)
    first = structure.log_prob(vertices, scores[0, 0])
    _assert_close("log_prob", first, (totals - log_z)[:, 0, 0])


def _check_sampler(structure: Structure, scores: Tensor, vertices: Tensor, n: int = 20_000) -> None:
    check_generator_contract(
        lambda g: structure.sample(scores, (50,), generator=g), varies=len(vertices) > 1
    )
    z = structure.sample(scores, (n,), generator=torch.Generator().manual_seed(0))
    assert bool(structure.contains(z).all()), "a sample is not an object of the structure"
    names, which = torch.cat([vertices, z]).flatten(1).unique(dim=0, return_inverse=True)
    counts = torch.bincount(which[len(vertices) :], minlength=len(names))[which[: len(vertices)]]
    assert_frequencies(counts, structure.log_prob(vertices, scores).exp())
