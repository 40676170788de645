"""Open sets: scores in high precision, metrics against scikit-learn, losses against their definitions, outliers."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torch import nn
from torch.nn.functional import cross_entropy

import argrad as ag
from argrad import openset as o
from argrad.testing.parts import check_generator_contract

SCORES = [o.max_softmax, o.max_logit, o.entropy, o.energy, o.reject]
by_name = pytest.mark.parametrize("score", SCORES, ids=lambda s: s.__name__)


def exactly(name: str, row: list[float]) -> float:
    """The score with 60 digits."""
    with mp.workdps(60):
        weights = [mp.exp(mp.mpf(x)) for x in row]
        p = [w / mp.fsum(weights) for w in weights]
        return float(
            {
                "max_softmax": lambda: 1 - max(p),
                "max_logit": lambda: -max(map(mp.mpf, row)),
                "entropy": lambda: -mp.fsum(x * mp.log(x) for x in p if x),
                "energy": lambda: -mp.log(mp.fsum(weights)),
                "reject": lambda: mp.log(weights[-1]) - mp.log(mp.fsum(weights[:-1])),
            }[name]()
        )


# ---- scores ----------------------------------------------------------------------------------------


@by_name
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0, 80.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_are_right_to_the_last_digits(score, scale, dtype):
    logits = (scale * torch.randn(30, 5, generator=torch.Generator().manual_seed(1))).to(dtype)
    expected = [exactly(score.__name__, row) for row in logits.double().tolist()]
    # relative, also for confidences within 1e-30 of 1; a difference of logits of size s costs s ulp
    rounding = 20 * (1 + scale) * torch.finfo(dtype).eps
    assert score(logits).tolist() == pytest.approx(
        expected, rel=rounding, abs=1e-37 if scale > 50 else 1e-45
    )


@by_name
def test_scores_have_the_shape_of_the_batch_and_a_gradient(score):
    for batch in ((), (4,), (2, 3), (0,)):
        assert score(torch.randn(*batch, 5)).shape == batch
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(score, logits)
    assert torch.autograd.gradgradcheck(score, logits)
    assert score(torch.randn(3, 4).bfloat16()).dtype == torch.bfloat16


def test_scores_are_larger_for_strange_inputs():
    sure, unsure = torch.tensor([9.0, 0.0, 0.0, -5.0]), torch.tensor([0.5, 0.4, 0.3, 3.0])
    for score in SCORES:
        assert score(sure) < score(unsure) or score is o.energy
    assert o.energy(sure) < o.energy(torch.tensor([0.5, 0.4, 0.3, 0.3]))


def test_forbidden_classes_do_not_count():
    logits = torch.tensor([[1.0, 2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    for score in (o.max_softmax, o.max_logit, o.entropy, o.energy):
        value = score(logits)
        assert value.item() == pytest.approx(score(logits[:, :2]).item(), rel=1e-15)
        (grad,) = torch.autograd.grad(value.sum(), logits)
        assert bool(grad.isfinite().all()) and grad[0, 2] == 0


# ---- metrics ---------------------------------------------------------------------------------------


def drawn(n: int, m: int, ties: bool, seed: int):
    g = torch.Generator().manual_seed(seed)
    known, unknown = torch.randn(n, generator=g), 0.7 + torch.randn(m, generator=g)
    return (known.round(decimals=1), unknown.round(decimals=1)) if ties else (known, unknown)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (7, 3), (100, 100), (400, 30)])
def test_metrics_are_those_of_scikit_learn(n, m, ties):
    for seed in range(5):
        known, unknown = (x.double() for x in drawn(n, m, ties, seed))
        scores = np.r_[known.numpy(), unknown.numpy()]
        is_unknown = np.r_[np.zeros(n), np.ones(m)]
        assert o.auroc(known, unknown).item() == pytest.approx(sk.roc_auc_score(is_unknown, scores))
        out = sk.average_precision_score(is_unknown, scores)
        assert o.aupr(known, unknown, positive="unknown").item() == pytest.approx(out)
        inside = sk.average_precision_score(1 - is_unknown, -scores)
        assert o.aupr(known, unknown).item() == pytest.approx(inside)
        fpr, tpr, _ = sk.roc_curve(1 - is_unknown, -scores, drop_intermediate=False)
        for level in (0.5, 0.95, 1.0):
            # the first point of the curve that reaches the level
            expected = fpr[np.argmax(tpr >= level - 1e-12)]
            assert o.fpr_at_tpr(known, unknown, tpr=level).item() == pytest.approx(expected)


def test_metrics_at_the_ends():
    low, high = torch.zeros(50), torch.ones(20)
    assert (o.auroc(low, high), o.fpr_at_tpr(low, high), o.aupr(low, high)) == (1, 0, 1)
    assert (o.auroc(high, low), o.fpr_at_tpr(high, low)) == (0, 1)
    assert o.auroc(low, torch.zeros(20)) == 0.5
    assert o.auroc(torch.tensor([0.0]), torch.tensor([math.inf])) == 1


def test_metrics_of_a_batch_are_a_loop():
    known, unknown = torch.randn(2, 3, 40), torch.randn(2, 3, 25)
    for metric in (o.auroc, o.aupr, o.fpr_at_tpr):
        values = metric(known, unknown)
        assert values.shape == (2, 3)
        for i in range(2):
            for j in range(3):
                assert values[i, j].item() == pytest.approx(metric(known[i, j], unknown[i, j]).item())


# ---- the loss --------------------------------------------------------------------------------------

F, Y, OUT = torch.randn(6, 4), torch.tensor([0, 1, 2, 1, 0, 2]), torch.randn(9, 4)


def test_kl_is_the_divergence_from_uniform():
    loss = ag.ConfidenceLoss("kl", beta=0.7)
    uniform = torch.full((9, 4), 0.25)
    kl = torch.nn.functional.kl_div(OUT.log_softmax(-1), uniform, reduction="batchmean")
    assert loss(F, Y, OUT).item() == pytest.approx((cross_entropy(F, Y) + 0.7 * kl).item(), rel=1e-5)
    x = OUT.double().requires_grad_()
    (grad,) = torch.autograd.grad(loss.outlier(x).sum(), x)
    assert torch.allclose(grad, x.softmax(-1) - 0.25)
    assert loss.outlier(torch.tensor([1e8, 1e8 + 8])).item() == pytest.approx(4 - math.log(2), abs=2e-3)


def test_reject_is_cross_entropy_with_one_class_more():
    loss = ag.ConfidenceLoss("reject", beta=0.7)
    expected = cross_entropy(F, Y) + 0.7 * cross_entropy(OUT, torch.full((9,), 3))
    assert loss(F, Y, OUT).item() == pytest.approx(expected.item(), rel=1e-5)


def test_energy_has_margins():
    loss = ag.ConfidenceLoss("energy", beta=0.7, margins=(-3.0, -1.0))
    inside, outside = -F.logsumexp(-1), -OUT.logsumexp(-1)
    hinge = (inside + 3).relu().square().mean() + (-1 - outside).relu().square().mean()
    assert loss(F, Y, OUT).item() == pytest.approx((cross_entropy(F, Y) + 0.7 * hinge).item(), rel=1e-5)
    assert loss.outlier(torch.tensor([[-9.0, -9.0]])).item() == 0


@pytest.mark.parametrize("mode", ["kl", "reject", "energy"])
def test_losses_are_differentiable(mode):
    loss = ag.ConfidenceLoss(mode)
    f, out = F.double().requires_grad_(), OUT.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: loss(a, Y, b), (f, out))
    assert loss(F.bfloat16(), Y, OUT.bfloat16()).dtype == torch.bfloat16


# ---- outliers --------------------------------------------------------------------------------------


def test_shell_points_are_near_but_outside():
    g = torch.Generator().manual_seed(0)
    data = torch.randn(800, 3, generator=g)
    shell = o.Shell(data, inner=1.5, outer=50.0)
    x = shell.sample(3000, generator=g)
    distance = torch.cdist(x, data).amin(-1) / shell.radius
    assert 1.5 <= distance.min() < 1.6
    assert distance.max() <= 50.001
    # log r is uniform, so both ends are well populated
    assert (distance < 5).float().mean() > 0.1
    assert (distance > 20).float().mean() > 0.1
    nearest = torch.cdist(data, data).fill_diagonal_(math.inf).amin(-1)
    assert shell.radius == pytest.approx(nearest.quantile(0.95).item())


def test_shell_keeps_shapes_and_generators():
    data = torch.randn(40, 1, 4, 4)
    shell = o.Shell(data)
    assert shell.sample(7).shape == (7, 1, 4, 4)
    assert shell.sample(0).shape == (0, 1, 4, 4)
    check_generator_contract(lambda g: shell.sample(20, generator=g))


def test_pull_away_is_the_mean_squared_cosine():
    x = torch.randn(7, 2, 3, dtype=torch.float64, requires_grad=True)
    flat = x.detach().flatten(1).numpy()
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    pairs = [(unit[i] @ unit[j]) ** 2 for i in range(7) for j in range(7) if i != j]
    assert o.pull_away(x).item() == pytest.approx(np.mean(pairs))
    assert torch.autograd.gradcheck(o.pull_away, x)
    for scale in (0.0, 1e-30, 1e30):
        small = (scale * torch.randn(3, 2)).requires_grad_()
        o.pull_away(small).backward()
        assert bool(small.grad.isfinite().all())


def small_gan(mode: str = "kl", **options) -> o.ConfidentGAN:
    classes = 3 if mode == "reject" else 2
    loss = ag.ConfidenceLoss(mode, beta=0.5)
    return o.ConfidentGAN(
        nn.Linear(2, classes), nn.Linear(4, 2), nn.Linear(2, 1), noise_dim=4, loss=loss, **options
    )


@pytest.mark.parametrize("mode", ["kl", "reject", "energy"])
def test_gan_losses_are_those_of_the_paper(mode):
    gan = small_gan(mode, pull_away=0.3)
    x, y, noise = torch.randn(8, 2), torch.randint(2, (8,)), torch.randn(8, 4)
    fake = gan.generator(noise)
    D = lambda v: gan.discriminator(v).sigmoid()  # noqa: E731
    outlier = gan.loss.outlier(gan.classifier(fake)).mean()
    expected = -(D(x).log() + (1 - D(fake)).log()).mean()
    assert gan.discriminator_loss(x, noise).item() == pytest.approx(expected.item(), rel=1e-5)
    expected = (1 - D(fake)).log().mean() + 0.5 * outlier + 0.3 * o.pull_away(fake)
    assert gan.generator_loss(noise).item() == pytest.approx(expected.item(), rel=1e-5)
    known = gan.classifier(x)
    expected = gan.loss.inlier(known, y).mean() + 0.5 * outlier
    assert gan.classifier_loss(x, y, noise).item() == pytest.approx(expected.item(), rel=1e-5)
    gan.non_saturating = True
    expected = -D(fake).log().mean() + 0.5 * outlier + 0.3 * o.pull_away(fake)
    assert gan.generator_loss(noise).item() == pytest.approx(expected.item(), rel=1e-5)


def test_each_step_trains_its_own_part():
    gan = small_gan()
    x, y, noise = torch.randn(8, 2), torch.randint(2, (8,)), torch.randn(8, 4)
    for loss, part in (
        (gan.discriminator_loss(x, noise), gan.discriminator),
        (gan.classifier_loss(x, y, noise), gan.classifier),
    ):
        gan.zero_grad()
        loss.backward()
        for other in (gan.discriminator, gan.generator, gan.classifier):
            touched = any(p.grad is not None for p in other.parameters())
            assert touched == (other is part)
    before = [p.clone() for p in gan.parameters()]
    step = gan.step(x, y, gan.optimizers(0.1), generator=torch.Generator().manual_seed(0))
    assert all(not torch.equal(a, b) for a, b in zip(before, gan.parameters(), strict=True))
    assert all(math.isfinite(v) for v in (step.discriminator, step.generator, step.classifier))


def test_gan_steps_repeat_with_the_generator():
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        gan, g = small_gan(), torch.Generator().manual_seed(1)
        adams = gan.optimizers()
        x, y = torch.randn(8, 2), torch.randint(2, (8,))
        before = torch.get_rng_state()
        runs.append([gan.step(x, y, adams, generator=g) for _ in range(3)])
        assert torch.equal(torch.get_rng_state(), before)
    assert runs[0] == runs[1]
    fixed = small_gan().step(x, y, small_gan().optimizers(), generator=ag.CounterRNG(0))
    assert math.isfinite(fixed.generator)


@pytest.mark.statistical
def test_a_shell_teaches_what_cross_entropy_does_not():
    """Two Gaussians, outliers all around: cross-entropy is confident there, the three modes are not."""
    g = torch.Generator().manual_seed(0)

    def inputs(n):
        y = torch.randint(2, (n,), generator=g)
        return torch.randn(n, 2, generator=g) + torch.stack([8.0 * y - 4, torch.zeros(n)], -1), y

    x, y = inputs(400)
    test, strange = inputs(500)[0], 60 * torch.rand(500, 2, generator=g) - 30
    strange = strange[torch.cdist(strange, torch.tensor([[-4.0, 0.0], [4.0, 0.0]])).amin(-1) > 5]
    scores = {"kl": o.entropy, "reject": o.reject, "energy": o.energy}
    shell = o.Shell(x)
    for mode, score in [("none", o.entropy), *scores.items()]:
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(2, 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, 2 + (mode == "reject")),
        )
        adam = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(400):
            if mode == "none":
                loss = cross_entropy(net(x), y)
            else:
                loss = ag.ConfidenceLoss(mode)(net(x), y, net(shell.sample(200, generator=g)))
            adam.zero_grad()
            loss.backward()
            adam.step()
        found = o.auroc(score(net(test)), score(net(strange))).item()
        assert found < 0.7 if mode == "none" else found > 0.95, (mode, found)


# ---- wrong input -----------------------------------------------------------------------------------

WRONG = [
    (lambda: o.energy(torch.tensor([0.0, math.nan])), "`energy(logits=...)` must not hold NaN or +inf"),
    (lambda: o.entropy(torch.zeros(3, 0)), "must offer at least one item"),
    (lambda: o.max_softmax(torch.zeros(3).long()), "must be floating point"),
    (
        lambda: o.auroc(torch.zeros(3), torch.zeros(0)),
        "`auroc(unknown=...)` must hold at least one score",
    ),
    (lambda: o.auroc(torch.tensor([math.nan]), torch.zeros(1)), "`auroc(known=...)` must not hold NaN"),
    (lambda: o.fpr_at_tpr(F[0], F[1], tpr=0), "must be above 0 and at most 1; got 0"),
    (lambda: o.aupr(F[0], F[1], positive="in"), 'must be "known" or "unknown"; got in'),
    (
        lambda: ag.ConfidenceLoss("entropy"),
        '`ConfidenceLoss(mode=...)` must be one of "kl", "reject", "energy"',
    ),
    (lambda: ag.ConfidenceLoss(beta=-1.0), "must be finite and at least 0; got -1.0"),
    (lambda: ag.ConfidenceLoss("energy", margins=(0.0, -1.0)), "must rise; got (0.0, -1.0)"),
    (
        lambda: ag.ConfidenceLoss()(F, Y + 2, OUT),
        "must be class numbers from 0 to 3; got int64[6], from 2 to 4",
    ),
    (lambda: ag.ConfidenceLoss("reject")(F, Y + 1, OUT), "must be class numbers from 0 to 2"),
    (lambda: ag.ConfidenceLoss()(F, Y, OUT[:, :3]), "must have as many classes as the logits, 4"),
    (lambda: ag.ConfidenceLoss()(F * math.nan, Y, OUT), "must not hold NaN"),
    (lambda: o.Shell(torch.zeros(5, 2)), "must not consist of copies"),
    (lambda: o.Shell(torch.zeros(1, 2)), "must hold at least two examples"),
    (lambda: o.Shell(F, inner=2.0, outer=1.0), "must satisfy 0 < inner < outer; got (2.0, 1.0)"),
    (lambda: o.Shell(F).sample(-1), "must be an integer of at least 0"),
    (lambda: o.pull_away(torch.zeros(1, 2)), "must hold at least two samples"),
    (lambda: small_gan().noise(3, F, generator=5), "must be a `torch.Generator`"),
]


@pytest.mark.parametrize(("call", "sentence"), WRONG)
def test_wrong_input_gets_a_sentence(call, sentence):
    with pytest.raises(ag.ArgradError) as caught:
        call()
    assert sentence in str(caught.value)


def test_a_shell_that_cannot_get_out_says_so():
    grid = torch.cartesian_prod(torch.arange(40.0), torch.arange(40.0))
    shell = o.Shell(grid, inner=0.99, outer=1.0)
    with pytest.raises(ag.ConvergenceError, match="Raise `outer`"):
        shell.sample(2000)
