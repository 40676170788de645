"""torch-struct 0.5, where it is right: chains, and non-projective trees at small scores.

It writes `[place, next tag, tag]` where we write `[place, tag, next tag]`, and puts the scores of arcs from
the root on the diagonal.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import argrad as ag

torch_struct = pytest.importorskip("torch_struct")
# torch-struct's classes do not define `arg_constraints`, of which torch warns
pytestmark = pytest.mark.filterwarnings("ignore:.*does not define `arg_constraints`:UserWarning")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
@pytest.mark.parametrize(("length", "tags"), [(2, 3), (6, 4), (33, 7)])
def test_chains(length: int, tags: int, scale: float) -> None:
    scores, chain = scale * normal(4, length - 1, tags, tags), ag.Chain()
    peer = torch_struct.LinearChainCRF(scores.mT.contiguous())
    torch.testing.assert_close(chain.log_partition(scores), peer.partition, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(chain.marginals(scores), peer.marginals.mT, rtol=1e-9, atol=1e-9)
    assert torch.equal(chain.argmax(scores), peer.argmax.mT)
    # the entropy is a difference of numbers as large as the scores
    torch.testing.assert_close(chain.entropy(scores), peer.entropy, rtol=0, atol=1e-11 * scale * length)
    z = chain.sample(scores, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        chain.log_prob(z, scores), peer.log_prob(z.mT), rtol=0, atol=1e-10 * scale
    )


def test_gradients_of_chains() -> None:
    scores, weight = normal(3, 5, 4, 4).requires_grad_(), normal(3, 5, 4, 4, seed=1)
    peer = torch_struct.LinearChainCRF(scores.mT)
    ours, theirs = (
        torch.autograd.grad((mu * weight).sum(), scores, retain_graph=True)[0]
        for mu in (ag.Chain().marginals(scores), peer.marginals.mT)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def with_root(scores: Tensor) -> Tensor:
    """Their scores with the root as node 0."""
    full = torch.nn.functional.pad(scores, (1, 0, 1, 0))
    full[..., 0, 1:] = scores.diagonal(dim1=-2, dim2=-1)
    return full


def without_root(marginals: Tensor) -> Tensor:
    return marginals[..., 1:, 1:] + torch.diag_embed(marginals[..., 0, 1:])


@pytest.mark.parametrize("multiroot", [True, False])
@pytest.mark.parametrize("n", [2, 5, 12])
def test_non_projective_trees(n: int, multiroot: bool) -> None:
    scores, tree = normal(6, n, n), ag.Arborescence(single_root=not multiroot)
    peer = torch_struct.NonProjectiveDependencyCRF(scores, multiroot=multiroot)
    # it adds 1e-5 to the Laplacian, whatever the dtype: an error of 1e-5 a node
    full = with_root(scores)
    torch.testing.assert_close(tree.log_partition(full), peer.partition, rtol=0, atol=5e-5 * n)
    torch.testing.assert_close(without_root(tree.marginals(full)), peer.marginals, rtol=0, atol=1e-4)
