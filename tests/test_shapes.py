"""Shape annotations are true: jaxtyping and beartype check them on every call, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
SRC = HERE.parents[1] / "src" / "argrad"
# torch reads the annotations of custom operators itself, and cannot through a decorator
UNCHECKED = {"solvers", "_kernels", "__init__", "__main__", "__pycache__", "cli", "recipes"}


def checker(function: Callable) -> Callable:
    """beartype, except for methods that return `Self`, which it refuses outside of decorated classes."""
    from beartype import beartype, roar

    try:
        return beartype(function)
    except roar.BeartypeDecorHintPep673Exception:
        return function


def calls() -> None:
    """Every public function and distribution of the Gumbel toolbox, in several shapes and dtypes."""
    import jaxtyping
    import torch

    import argrad as ag
    from argrad import _autograd, _numerics

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for batch in ((), (2,), (2, 3), (0,)):
            x = torch.randn(*batch, 5).to(dtype)
            mask = torch.ones(5, dtype=torch.bool)
            rng = ag.CounterRNG(0)
            for tau in (0.5, torch.tensor(0.5), torch.full(batch, 0.5)):
                ag.gumbel_softmax(x, tau, mask=mask)
                ag.gumbel_softmax(x, tau, hard=True, generator=rng)
                for kind in (ag.RelaxedOneHot, ag.RelaxedBits, ag.GumbelSoftmax):
                    q = kind(tau, logits=x)
                    q.log_prob(q.rsample((3,)))
                    wide = q.expand((4, *batch))
                    wide.log_prob(wide.sample())
            ag.gumbel_max(x, dim=-1, mask=mask)
            ag.gumbel_topk(x, 2, mask=mask.expand_as(x), generator=rng)
            ag.gumbel_given_max(x, torch.zeros(batch, dtype=dtype))
            ag.truncated_gumbel(x, torch.zeros((), dtype=dtype))
            ag.gumbel_posterior(x, torch.zeros(batch, dtype=torch.int64))
            for noise in (ag.Gumbel(), ag.Logistic(), ag.Normal()):
                draw = noise.like(x)
                noise.log_prob(draw)
                noise.kl(draw)
            ag.nn.GumbelSoftmax()(x, mask)
            _numerics.logsumexp(x.float())
    q = ag.GumbelSoftmax(1.0, logits=torch.zeros(2, 3))
    assert q.mean.shape == q.variance.shape == q.mode.shape == q.probs.shape == (2, 3)
    assert q.entropy().shape == (2,)
    contrastive_calls()
    sequence_calls()
    trust_calls()
    with pytest.raises(jaxtyping.TypeCheckError):  # the checker is awake
        _autograd.straight_through(torch.zeros(2), torch.zeros(3))


def contrastive_calls() -> None:
    """Losses for many classes, and where their noise comes from, in several shapes and dtypes."""
    import torch

    import argrad as ag

    counts = torch.arange(1, 8)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        heads = (
            ag.NCE(5, ag.Unigram(counts), log_z=torch.nn.Linear(5, 1, dtype=dtype), dtype=dtype),
            ag.NCE(5, ag.InBatch(7, counts), dtype=dtype),
            ag.SampledSoftmax(5, ag.LogUniform(7), shared=False, unique=True, dtype=dtype),
            ag.NegativeSampling(5, ag.AliasTable([1.0] * 7), dtype=dtype),
            ag.HierarchicalSoftmax(5, counts.numpy(), dtype=dtype),
        )
        for batch in ((2,), (2, 3), (0,)):
            x, y = torch.randn(*batch, 5).to(dtype), torch.zeros(batch, dtype=torch.int64)
            for head in heads:
                head(x, y)
            heads[0].log_prob(x, y), heads[0].log_prob(x, y, normalise=True), heads[0].log_partition(x)
            heads[2].log_prob(x, y), heads[2].sample(x), heads[2].scores(x)
            heads[4].log_prob(x, y), heads[4].log_probs(x), heads[4].sample(x)
            loss = ag.InfoNCE()
            loss(x, x), loss(x, x, torch.randn(4, 5).to(dtype)), loss(x, x, x[..., None, :])


def sequence_calls() -> None:
    """Every sampler of sequences, of several shapes, and what is made of a sample."""
    import torch

    import argrad as ag
    from sequence_oracle import Tabular

    model = Tabular.random(4, 4)
    for batch in (0, 1, 3):
        start, sampler = (
            model.start(batch),
            ag.UniqueSampler(model.step, model.start(batch), **model.options),
        )
        samples = [
            ag.stochastic_beam_search(model.step, start, 200, tau=0.5, **model.options),
            ag.stochastic_beam_search(model.step, start, 2, mask=torch.ones(4) > 0, **model.options),
            sampler.draw(2),
            sampler.sample,
            ag.ancestral_sample(model.step, start, 2, **model.options),
            ag.arithmetic_sample(model.step, start, 2, **model.options),
        ]
        for sample in samples:
            log_prob = ag.sequence_log_prob(model.step, start, sample.tokens, sample.length)
            sample.surrogate(lambda s: s.length, log_prob.requires_grad_())
            assert sample.entropy().shape == sample.expectation(sample.length).shape == (batch,)
        ag.beam_search(model.step, start, 3, **model.options)
        tokens = samples[4].tokens[:, 0]
        ag.rollout(model.step, start, tokens, lambda t, n: n.double(), **model.options)
        ag.hindsight_gumbels(samples[1].log_prob)
        ag.plackett_luce_log_prob(samples[1].log_prob)
        ag.leave_one_out_log_ratio(samples[1].log_prob, order=2)
        ag.log_prob_set(samples[1].log_prob)


def trust_calls() -> None:
    """Calibration, open sets and reparameterisations, of several shapes and dtypes."""
    import torch

    import argrad as ag

    c, o = ag.calibration, ag.openset
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for batch in ((), (2,), (0,)):
            z = torch.randn(*batch, 40, 3).to(dtype)
            y = torch.randint(3, (*batch, 40))
            c.fit_temperature(z, y, weights=torch.ones(*batch, 40))
            c.fit_max_entropy([c.MeanLogit(), c.ClassFrequency()], z, y, ridge=0.1)
            ag.TemperatureScaling().fit(z, y)(z)
            ag.MaxEntCalibrator(ridge=0.1).fit(z, y)(z)
            for metric in (c.ece, c.ace, c.nll, c.brier, c.reliability):
                metric(z, y)
            for score in (o.max_softmax, o.max_logit, o.entropy, o.energy, o.reject):
                score(z)
            o.auroc(z[..., 0], z[..., 1])
            o.aupr(z[..., 0], z[..., 1])
            o.fpr_at_tpr(z[..., 0], z[..., 1])
            if batch == ():
                ag.ConfidenceLoss()(z, y, z[:5])
                o.pull_away(z)
    seen = ag.Subset(2).sample(torch.zeros(2, 30, 5))
    ag.calibrate_structure(ag.Subset(2), torch.randn(2, 30, 5), seen)
    o.Shell(torch.randn(20, 2, 2)).sample(3)
    gan = ag.ConfidentGAN(
        torch.nn.Linear(2, 3), torch.nn.Linear(4, 2), torch.nn.Linear(2, 1), noise_dim=4
    )
    gan.step(torch.randn(8, 2), torch.randint(3, (8,)), gan.optimizers())
    law = ag.reparam.Laplace(torch.zeros(3), 1.0)
    law.log_prob(law.transform(law.noise((4,), kind="sobol")))
    ag.reparam.uniform_of(ag.reparam.two_sided(torch.rand(4)))


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ARGRAD_CHECK_SHAPES": "1", "OMP_NUM_THREADS": "1"}
    names = {path.stem for path in SRC.iterdir() if path.suffix == ".py" or path.is_dir()} - UNCHECKED
    modules = sorted(f"argrad.{name}" for name in names)
    hook = (
        "import sys, jaxtyping\n"
        f"sys.path.insert(0, {str(HERE.parent)!r})\n"
        f"with jaxtyping.install_import_hook({modules}, 'test_shapes.checker'):\n"
        "    import argrad, argrad.gumbel, argrad.conditional_gumbel, argrad.relaxed, argrad.noise, argrad.nn\n"
        "    import argrad.sequences.search, argrad.sequences.unique, argrad.sequences.score\n"
        "    import argrad.sequences.ancestral, argrad.sequences.arithmetic\n"
        "    import argrad.calibration, argrad.openset, argrad.reparam, argrad.losses.confidence\n"
    )
    return subprocess.run(
        [sys.executable, "-c", hook + code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


def test_public_functions_keep_to_their_annotations() -> None:
    done = run("import test_shapes; test_shapes.calls()")
    assert done.returncode == 0, done.stderr[-3000:]
