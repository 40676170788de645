"""Every public function of argrad as something to be called with drawn inputs.

A target's name is the public name, a dot, and what is done with it; `test_fuzz.py` fails when a public name has no
target and no reason in `EXEMPT`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import argrad as ag
from cases import CLASS_NOISES, NOISES
from estimator_cases import ESTIMATORS as ESTIMATOR_CASES
from fuzz.inputs import INF, NAN, Draw
from fuzz.judge import Target
from structure_cases import STRUCTURES, StructureCase

TARGETS: dict[str, Target] = {}
RARE = (
    "MaxEntCalibrator",
    "calibration.fit_max_entropy",
    "calibrate_structure",
)  # a second, where others take 1 ms
TORCH_SPEAKS: set[str] = (
    set()
)  # names whose parameters `torch.distributions` checks, by its own sentences

EXEMPT = {
    "ArgradError ArgradWarning ConvergenceError ConvergenceWarning InputError InputTypeError UnsupportedError": (
        "what is raised"
    ),
    "Backward ClassNoise Estimator Noise Regularizer Structure Reparameterized": (
        "base classes; all that inherit are called"
    ),
    "Draw Estimate Negatives TopK NormalizedTopK LazyTopK Trace Race Report PartitionStats GanStep Reliability "
    "Temperature Status Constraint RepeatedSample Sequences SequenceSample": (
        "results, looked into where they come from"
    ),
    "debug cite": "no tensors",
    "diagnose race check_batch_independence": "thousands of calls in one; tests of their own",
    "compile_gradient": "compiles for seconds in one call; tests of its own",
    "ConfidentGAN": "trains three networks in one call; tests of its own",
    "Feature MeanLogit ClassLogit ClassFrequency": "constraints, called by MaxEntCalibrator",
    "Implicit Unrolled FiniteDifference BinaryEntropy Entropy Euclidean ExponentialFamily SuccessiveSoftmax Tsallis": (
        "arguments of `relax`, drawn there"
    ),
    "plot testing integrations": "draw pictures, test, and call other libraries",
}


def target(name: str, *, torch_speaks: bool = False) -> Callable[[Target], Target]:
    """Put a function on the list."""

    def add(function: Target) -> Target:
        assert name not in TARGETS, name
        TARGETS[name] = function
        if torch_speaks:
            TORCH_SPEAKS.add(name)
        return function

    return add


# ---- Gumbel toolbox --------------------------------------------------------------------------------


def _row(d: Draw) -> tuple[Tensor, tuple[int, ...], int]:
    batch, n = d.batch(), d.size()
    return d.scores((*batch, n)), batch, n


@target("gumbel_softmax")
def _(d: Draw) -> Any:
    x, batch, _ = _row(d)
    dim = d.among([-1], [0, -2, 5, "x"])
    options = {"mask": d.mask(x.shape), "generator": d.generator()}
    return ag.gumbel_softmax(x, d.tau(batch), d.choice([True, False]), dim, **options)


@target("gumbel_max")
def _(d: Draw) -> Any:
    x, _, _ = _row(d)
    return ag.gumbel_max(x, dim=d.among([-1], [0, -2]), mask=d.mask(x.shape), generator=d.generator())


@target("gumbel_topk")
def _(d: Draw) -> Any:
    x, _, n = _row(d)
    top = ag.gumbel_topk(x, d.count(n), mask=d.mask(x.shape), generator=d.generator())
    return top._asdict()


@target("gumbel_given_max")
def _(d: Draw) -> Any:
    x, batch, _ = _row(d)
    return ag.gumbel_given_max(x, d.scores(batch), mask=d.mask(x.shape), generator=d.generator())


@target("truncated_gumbel")
def _(d: Draw) -> Any:
    x, _, _ = _row(d)
    upper = d.scores(d.choice([x.shape, x.shape[-1:]]))
    return ag.truncated_gumbel(x, upper, mask=d.mask(x.shape), generator=d.generator())


@target("gumbel_posterior")
def _(d: Draw) -> Any:
    x, batch, n = _row(d)
    observed = d.labels(batch, n)
    return ag.gumbel_posterior(x, observed, mask=d.mask(x.shape), generator=d.generator())


@target("linear_gumbel_topk")
def _(d: Draw) -> Any:
    batch, v, width = d.batch(), d.size(1, 20), d.size(1, 3)
    dtype = d.choice([None, torch.float32, torch.float32, torch.float64])
    hidden, weight = d.scores((*batch, width), dtype=dtype), d.scores((v, width), dtype=dtype)
    options = {
        "bias": d.scores((v,), dtype=dtype) if d.chance(0.3) else None,
        "chunk": d.choice([3, 64]),
    }
    options |= {"tau": d.tau(batch), "mask": d.mask((*batch, v)), "generator": d.generator()}
    return ag.linear_gumbel_topk(hidden, weight, d.count(v), **options)._asdict()


@target("softsort")
def _(d: Draw) -> Any:
    x, batch, _ = _row(d)
    return ag.softsort(x, d.tau(batch))


@target("neuralsort")
def _(d: Draw) -> Any:
    x, batch, _ = _row(d)
    return ag.neuralsort(x, d.tau(batch))


# ---- noise -----------------------------------------------------------------------------------------


def _random(kind: str) -> None:
    @target(f"random.{kind}")
    def _(d: Draw) -> Any:
        shape = d.among([*[(2,), (0,), (), (2, 3)]], [(-1,), 2.5, "x", None, (2.5,), [3]])
        options = {"dtype": d.among([None, torch.float16, torch.float64], [torch.int64, "float32"])}
        options |= {"device": d.device, "generator": d.generator()}
        return getattr(ag.random, kind)(shape, **options)


for _kind in ("gumbel", "exponential", "logistic", "uniform", "normal"):
    _random(_kind)


@target("CounterRNG")
def _(d: Draw) -> Any:
    seeds = [0, 2**70, -(2**65), d.integer(0, 2**40)]
    rng = ag.CounterRNG(d.among(seeds, [1.5, "x", None, True]), d.choice([0, 2**63, -3]))
    rng = rng.shift(d.among([0, 5, 2**64], [1.5]), d.integer(0, 9)).fold(d.among([3, 2**66, -1], ["x"]))
    kind = d.choice(["gumbel", "exponential", "uniform"])
    return getattr(rng, kind)(d.among([0, 2], [-1, 2.5]), d.integer(0, 3), device=d.device)


def _noise(name: str, noise: ag.Noise) -> None:
    @target(f"{type(noise).__name__}.{name}")
    def _(d: Draw) -> Any:
        x = d.scores((*d.batch(), d.size()))
        draw = noise.like(x, d.generator())
        what = d.integer(0, 2)
        if what == 0:
            return ag.OneHot().argmax(noise.perturb(x, draw, d.number()))  # which checks the sum
        return noise.log_prob(x) if what == 1 else noise.kl(x)


for _i, _case in enumerate(NOISES):
    _noise(str(_i), _case)


def _schedule(name: str, cls: type, *counts: int) -> None:
    @target(f"schedules.{name}")
    def _(d: Draw) -> Any:
        given = [d.number() for _ in counts]
        if name == "Learnable":
            return cls(*given)(d.integer(0, 5)).detach()
        made = cls(*given)
        return made(d.among([0, 1, 10**9, torch.tensor(3)], [-1, 2.5, "x", None]))


for _name, _arguments in {
    "Constant": 1,
    "Exponential": 3,
    "Linear": 2,
    "Cosine": 2,
    "Learnable": 2,
}.items():
    _schedule(_name, getattr(ag.schedules, _name), *range(_arguments))


def _class_noise(name: str, noise: ag.ClassNoise) -> None:
    @target(f"{type(noise).__name__}.{name}")
    def _(d: Draw) -> Any:
        what, shape = d.integer(0, 2), d.batch()
        if what == 0:
            return noise.sample(shape, device=d.device, generator=d.generator())
        index = d.labels(shape, noise.num_classes)
        if what == 1:
            return noise.log_prob(index)
        negatives = noise.negatives(
            index, d.count(5), shared=d.choice([True, False]), generator=d.generator()
        )
        return negatives.index


for _i, _law in enumerate([*CLASS_NOISES, ag.InBatch(6)]):
    _class_noise(str(_i), _law)


@target("AliasTable.make")
def _(d: Draw) -> Any:
    make = d.choice([ag.AliasTable, ag.Unigram, lambda w: ag.InBatch(len(w), w)])
    values = d.choice([torch.rand, lambda *s, generator: torch.randint(-1, 9, s, generator=generator)])
    weights = d.tensor((d.size(),), values=lambda s, g: values(*s, generator=g))
    return make(weights).log_prob(torch.zeros(1, dtype=torch.int64))


# ---- structures ------------------------------------------------------------------------------------

BACKWARDS = [None, None, ag.Implicit(), ag.Unrolled(), ag.FiniteDifference()]


def _event(case: StructureCase, d: Draw) -> tuple[int, ...]:
    return case.event if not d.chance(0.03) else d.choice([(), (2,), (3, 3), (0, 0), (2, 3, 2)])


def _structure(case: StructureCase, method: str) -> None:
    z = case.structure
    name = f"{type(z).__name__}.{case.name}.{method}"

    @target(name)
    def _(d: Draw) -> Any:
        batch = d.batch()
        x = d.scores((*batch, *_event(case, d)))
        mask = case.mask.to(d.device) if d.chance(0.2) else d.mask(x.shape)
        if method == "relax":
            options = {
                "regularizer": d.among(
                    [None, *case.regularizers], [ag.Tsallis(3.0), ag.SuccessiveSoftmax()]
                ),
                "backward": d.choice(BACKWARDS),
            }
            return z.relax(x, d.tau(batch), mask=mask, **options)
        if method == "sample":
            return z.sample(x, d.samples(), mask=mask, generator=d.generator())
        if method == "log_prob":
            with torch.no_grad():
                vertex = z.argmax(torch.randn(x.shape).to(d.device))
            noisy = vertex + d.among([0.0], [0.5, NAN, -1.0])
            return z.log_prob(noisy, x, mask=mask)
        return getattr(z, method)(x, mask=mask)


for _structure_case in STRUCTURES:
    for _method in ("argmax", "relax", "log_partition", "marginals", "entropy", "sample", "log_prob"):
        _structure(_structure_case, _method)


@target("Oracle")
def _(d: Draw) -> Any:
    x, _, n = _row(d)
    wrong = [lambda s: s[..., :1], lambda s: None, lambda s: s * NAN]
    fn = d.among([lambda s: nn.functional.one_hot(s.argmax(-1), n).to(s)], wrong)
    z = ag.Oracle(fn)
    return z.argmax(x) if d.chance(0.5) else ag.Perturbed(z, x).sample((2,), generator=d.generator())


@target("Subset.make")
def _(d: Draw) -> Any:
    x, batch, n = _row(d)
    k: Any = d.labels(batch, n + 1) if d.chance(0.5) else d.count(n)
    z = d.choice([ag.Subset, ag.ChainSubset])(k)
    if isinstance(z, ag.ChainSubset):
        x = d.scores((*batch, max(2 * n - 1, 0)))
    return d.choice([z.argmax, z.marginals, z.relax])(x)


@target("Chain.scores")
def _(d: Draw) -> Any:
    batch, length, c = d.batch(), d.size(1, 4), d.size(1, 3)
    pairwise = d.scores((*batch, max(length - 1, 0), c, c)) if d.chance(0.5) else None
    return ag.Chain.tags(ag.Chain().argmax(ag.Chain.scores(d.scores((*batch, length, c)), pairwise)))


@target("Structure.contains")
def _(d: Draw) -> Any:
    case = d.choice(STRUCTURES)
    values = d.choice(
        [lambda s, g: torch.randint(0, 2, s, generator=g), lambda s, g: torch.randn(s, generator=g)]
    )
    return case.structure.contains(d.tensor((*d.batch(), *_event(case, d)), values=values))


@target("Structure.enumerate")
def _(d: Draw) -> Any:
    case = d.choice(STRUCTURES)
    event = _event(case, d)
    return case.structure.enumerate(event, device=d.device), case.structure.count(event)


# ---- distributions ---------------------------------------------------------------------------------


@target("Gibbs")
def _(d: Draw) -> Any:
    case = d.choice(STRUCTURES)
    x = d.scores((*d.batch(), *_event(case, d)))
    q = ag.Gibbs(case.structure, x, mask=d.mask(x.shape))
    what = d.choice(["sample", "log_prob", "entropy", "mean", "mode", "log_partition"])
    if what == "log_prob":
        return q.log_prob(q.sample(d.samples(), generator=d.generator()))
    if what == "sample":
        return q.sample(d.samples(), generator=d.generator())
    found = getattr(q, what)
    return found() if callable(found) else found


@target("Perturbed")
def _(d: Draw) -> Any:
    case, batch = d.choice(STRUCTURES), d.batch()
    x = d.scores((*batch, *_event(case, d)))
    noise = d.choice([None, None, *NOISES])
    q = ag.Perturbed(case.structure, x, noise=noise, noise_scale=d.number(), mask=d.mask(x.shape))
    what, g = d.choice(["sample", "rsample", "draw", "log_prob", "trace", "noise_kl"]), d.generator()
    if what == "sample":
        return q.sample(d.samples(), generator=g)
    if what == "rsample":
        return q.rsample(d.samples(), tau=d.tau(batch), hard=d.choice([True, False]), generator=g)
    if what == "draw":
        return q.draw(d.samples(), tau=d.among([None, 0.5], [0.0]), generator=g)._asdict()
    if what == "log_prob":
        return q.log_prob(q.sample(generator=g))
    return q.trace(generator=g) if what == "trace" else q.noise_kl()


def _relaxed(name: str) -> None:
    cls = getattr(ag, name)

    @target(name, torch_speaks=True)
    def _(d: Draw) -> Any:
        batch, n = d.batch(), d.size()
        if d.chance(0.3):
            probs = d.tensor((*batch, n), values=lambda s, g: torch.rand(s, generator=g))
            q = cls(d.tau(batch), probs=probs)
        else:
            q = cls(d.tau(batch), logits=d.scores((*batch, n)))
        z = q.rsample(d.samples(), generator=d.generator())
        if d.chance(0.5):
            return z
        if name == "RelaxedOneHot" and d.chance(0.5):
            return q.log_prob_log(q.rsample_log(generator=d.generator()))
        return q.log_prob(z)


for _name in ("RelaxedOneHot", "RelaxedBits", "GumbelSoftmax"):
    _relaxed(_name)


# ---- estimators ------------------------------------------------------------------------------------

LAWS = [
    c
    for c in STRUCTURES
    if c.name in ("OneHot", "Bits", "Subset-2", "SpanningTree", "Chain", "Permutation")
]


def _estimator(name: str, make: Callable[[Any], ag.Estimator]) -> None:
    @target(f"{name}.estimate")
    def _(d: Draw) -> Any:
        case, batch = d.choice(LAWS), d.choice([(), (2,), (0,)])
        x = d.scores(
            (*batch, *case.event), hostile=0.15, dtype=d.choice([torch.float32, torch.float64])
        )
        law = d.choice([ag.Gibbs, ag.Perturbed])(case.structure, x, mask=d.mask(x.shape))
        bend = d.among([1.0, 0.0, 1e3], [1e20, NAN, INF], 0.1)

        def cost(z: Tensor) -> Tensor:
            return (z.flatten(z.dim() - len(case.event)).to(x.dtype) - 0.3).square().sum(-1) * bend

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            estimator = make(law)
        if isinstance(estimator, nn.Module):
            estimator = estimator.to(d.device, x.dtype)
        return estimator(cost, law, generator=d.generator())


for _estimator_case in ESTIMATOR_CASES:
    _estimator(_estimator_case.name, _estimator_case.make)


@target("GradientMonitor")
def _(d: Draw) -> Any:
    monitor, x = ag.GradientMonitor(), _row(d)[0]
    z = ag.gumbel_softmax(monitor.watch("z", x, tau=0.5), generator=d.generator())
    if z.requires_grad:
        z.sum().backward()
    return None


# ---- losses ----------------------------------------------------------------------------------------


def _sampled(name: str, **fixed: Any) -> None:
    @target(name)
    def _(d: Draw) -> Any:
        batch, width = d.batch(), d.size(1, 3)
        noise = d.choice([c for c in CLASS_NOISES if c.num_classes > 3])
        options = {"shared": d.choice([True, False]), "device": d.device, **fixed}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            loss = getattr(ag, name)(width, noise, d.count(4), **options)
        hidden, target = (
            d.scores((*batch, width), dtype=torch.float32),
            d.labels(batch, noise.num_classes),
        )
        if d.chance(0.3):
            return loss.log_prob(hidden, target)
        return loss(hidden, target, generator=d.generator())


for _name in ("NCE", "NegativeSampling", "SampledSoftmax"):
    _sampled(_name)


@target("HierarchicalSoftmax")
def _(d: Draw) -> Any:
    batch, width = d.batch(), d.size(1, 3)
    counts = d.among([[3.0, 1.0, 0.5], [1.0], [0.0, 1.0]], [[], [-1.0, 1.0], [NAN]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = ag.HierarchicalSoftmax(width, counts, device=d.device)
    hidden = d.scores((*batch, width), dtype=torch.float32)
    if d.chance(0.3):
        return loss.log_probs(hidden) if d.chance(0.5) else loss.sample(hidden, generator=d.generator())
    return loss(hidden, d.labels(batch, len(counts)))


@target("InfoNCE")
def _(d: Draw) -> Any:
    batch, m = d.batch(), d.size()
    loss = ag.InfoNCE(d.tau())
    positive, negative = d.scores(batch), d.scores((*batch, m))
    return loss.of_scores(positive, negative, mask=d.mask(negative.shape))


@target("InfoNCE.cosine")
def _(d: Draw) -> Any:
    n, width = d.size(1, 4), d.size(1, 3)
    return ag.InfoNCE(d.tau(), cosine=d.choice([True, False]))(
        d.scores((n, width)), d.scores((n, width))
    )


@target("FenchelYoung")
def _(d: Draw) -> Any:
    case, batch = d.choice(STRUCTURES), d.batch()
    x = d.scores((*batch, *case.event))
    z = case.structure.argmax(torch.zeros(x.shape, device=d.device))
    return ag.FenchelYoung(case.structure, d.choice([None, *case.regularizers]), d.number())(x, z)


@target("PerturbedFenchelYoung")
def _(d: Draw) -> Any:
    case, batch = d.choice(STRUCTURES), d.batch()
    x = d.scores((*batch, *case.event))
    z = case.structure.argmax(torch.zeros(x.shape, device=d.device))
    return ag.PerturbedFenchelYoung(case.structure, noise_scale=d.number())(
        x, z, generator=d.generator()
    )


@target("ConfidenceLoss")
def _(d: Draw) -> Any:
    x, batch, n = _row(d)
    loss = ag.ConfidenceLoss(d.among(["kl", "reject", "energy"], ["x"]), d.number())
    return loss.outlier(x) if d.chance(0.5) else loss.inlier(x, d.labels(batch, n))


# ---- calibration and open sets ---------------------------------------------------------------------


def _calibration(name: str) -> None:
    @target(f"calibration.{name}")
    def _(d: Draw) -> Any:
        batch, n, classes = d.choice([(), (), (2,), (0,)]), d.size(1, 6), d.size(1, 4)
        logits, labels = d.scores((*batch, n, classes)), d.labels((*batch, n), classes)
        function = getattr(ag.calibration, name)
        if name == "fit_max_entropy":
            return function(
                [ag.calibration.MeanLogit(), ag.calibration.ClassFrequency()], logits, labels
            )
        return _without_documented_nan(function(logits, labels))


def _without_documented_nan(found: Any) -> Any:
    """An empty bin has no confidence, and an optimum at infinity no standard error: NaN there is the answer."""
    if isinstance(found, ag.calibration.Reliability):
        return found.edges, found.count
    if isinstance(found, ag.calibration.Temperature):
        return found.temperature, found.inverse, found.status
    return found


for _name in ("ace", "brier", "ece", "nll", "reliability", "fit_temperature", "fit_max_entropy"):
    _calibration(_name)


def _calibrator(name: str) -> None:
    @target(name)
    def _(d: Draw) -> Any:
        n, classes = d.size(1, 6), d.size(1, 4)
        calibrator = getattr(ag, name)()
        calibrator.fit(d.scores((n, classes)), d.labels((n,), classes))
        return calibrator(d.scores((n, classes)))


for _name in ("TemperatureScaling", "MaxEntCalibrator"):
    _calibrator(_name)


@target("calibrate_structure")
def _(d: Draw) -> Any:
    case = d.choice(STRUCTURES)
    x = d.scores((*d.choice([(3,), (2, 3), (0,)]), *case.event))
    observed = case.structure.argmax(torch.randn(x.shape).to(d.device))
    found = ag.calibrate_structure(case.structure, x, observed, mask=d.mask(case.event))
    return _without_documented_nan(found)


def _openset(name: str) -> None:
    function = getattr(ag.openset, name)

    @target(f"openset.{name}")
    def _(d: Draw) -> Any:
        x, batch, _ = _row(d)
        if "known" in inspect.signature(function).parameters:
            return function(x, d.scores((*batch, d.size())))
        return function(x)


for _name in (
    "aupr",
    "auroc",
    "fpr_at_tpr",
    "energy",
    "entropy",
    "max_logit",
    "max_softmax",
    "pull_away",
    "reject",
):
    _openset(_name)


@target("openset.Shell")
def _(d: Draw) -> Any:
    shell = ag.openset.Shell(
        d.scores((d.size(1, 6), d.size(1, 3))), inner=d.number(), outer=d.among([9.0], [0.1, NAN])
    )
    return shell.sample(d.among([0, 3], [-1, 2.5]), generator=d.generator())


# ---- reparameterisations ---------------------------------------------------------------------------


def _validate(d: Draw) -> bool | None:
    """Torch's own checks of parameters read values, wherever they are."""
    return False if d.device == "meta" else None


def _law(name: str) -> None:
    cls = getattr(ag.reparam, name)
    count = 1 if name == "Exponential" else 2
    free = "loc" in inspect.signature(cls).parameters

    @target(f"reparam.{name}", torch_speaks=True)
    def _(d: Draw) -> Any:
        batch, dtype = d.batch(), d.choice([torch.float32, torch.float64])
        least, most = d.choice([(0.1, 1.1), (0.0, 10.0)])

        def positive(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
            return least + (most - least) * torch.rand(shape, generator=g)

        values = [d.tensor(batch, values=positive, dtype=dtype) for _ in range(count)]
        if free:
            values[0] = d.scores(batch, dtype=dtype)
        q = cls(*values, validate_args=_validate(d))
        kind = d.among(["iid", "antithetic", "stratified", "sobol"], ["x", None], 0.02)
        what, shape = d.integer(0, 2), d.among([(2,), (4,), ()], [(-1,), None], 0.02)
        if what == 0:
            return q.rsample(shape, kind=kind, generator=d.generator())
        if what == 1:
            return q.transform(q.noise(shape, generator=d.generator()))
        return q.log_prob(q.sample(generator=d.generator()))


for _name in ag.reparam.__all__:
    if _name[0].isupper() and _name not in ("MultivariateNormal", "Rademacher", "Reparameterized"):
        _law(_name)


@target("reparam.MultivariateNormal", torch_speaks=True)
def _(d: Draw) -> Any:
    n = d.integer(1, 3)
    loc = d.scores(
        (*d.choice([(), (2,)]), n), dtype=torch.float64
    )  # torch's checks fail for empty batches
    tril = torch.eye(n, dtype=torch.float64, device=d.device) * 2
    q = ag.reparam.MultivariateNormal(loc, scale_tril=tril, validate_args=_validate(d))
    return q.rsample(d.samples(), generator=d.generator())


@target("reparam.Rademacher", torch_speaks=True)
def _(d: Draw) -> Any:
    q = ag.reparam.Rademacher(d.batch())
    return q.log_prob(q.sample((2,), generator=d.generator())), q.entropy()


@target("reparam.two_sided")
def _(d: Draw) -> Any:
    u = d.tensor(d.batch(), values=lambda s, g: torch.rand(s, generator=g))
    return ag.reparam.uniform_of(ag.reparam.two_sided(u))


@target("reparam.uniform_of")
def _(d: Draw) -> Any:
    return ag.reparam.uniform_of(
        d.tensor(d.batch(), values=lambda s, g: 2 * torch.rand(s, generator=g) - 1)
    )


# ---- layers and presets ----------------------------------------------------------------------------


@target("nn.GumbelSoftmax")
def _(d: Draw) -> Any:
    x, _, _ = _row(d)
    layer = ag.nn.GumbelSoftmax(
        d.tau(), hard=d.choice([True, False]), evaluate=d.among(["sample", "mode"], ["x"])
    )
    return layer.train(d.chance(0.5))(x, mask=d.mask(x.shape), generator=d.generator())


@target("nn.StochasticSoftmax")
def _(d: Draw) -> Any:
    case = d.choice(STRUCTURES)
    x = d.scores((*d.batch(), *_event(case, d)))
    layer = ag.nn.StochasticSoftmax(case.structure, tau=d.tau(), evaluate=d.choice(["sample", "mode"]))
    return layer.train(d.chance(0.5))(x, mask=d.mask(x.shape), generator=d.generator())


def _preset(name: str, dims: int, takes_k: bool) -> None:
    function = getattr(ag.presets, name)

    @target(f"presets.{name}")
    def _(d: Draw) -> Any:
        batch, n = d.batch(), d.size(1, 4)
        length = 2 * n - 1 if name == "correlated_topk" else n
        x = d.scores((*batch, *([max(length, 0)] * dims)))
        words = [x, d.count(n)] if takes_k else [x]
        options: dict[str, Any] = {"generator": d.generator()}
        known = inspect.signature(function).parameters
        if "mask" in known:
            options["mask"] = d.mask(x.shape)
        if "tau" in known:
            options["tau"] = d.tau(batch)
        if "hard" in known:
            options["hard"] = d.choice([True, False])
        found = function(*words, **options)
        return found._asdict() if hasattr(found, "_asdict") else found


for _name, _dims, _takes_k in (
    ("gumbel_sinkhorn", 2, False),
    ("l2x", 1, True),
    ("softsub", 1, True),
    ("simple", 1, True),
    ("correlated_topk", 1, True),
    ("latent_tree", 2, False),
    ("latent_arborescence", 2, False),
    ("plackett_luce_topk", 1, True),
):
    _preset(_name, _dims, _takes_k)


# ---- sequences and streams -------------------------------------------------------------------------


def _model(d: Draw) -> tuple[Any, Tensor, int]:
    """A bigram model with awkward logits."""
    v, rows = d.integer(1, 4), d.integer(1, 2)
    table = d.scores((v + 1, v), hostile=0.15, dtype=d.choice([torch.float32, torch.float64])).detach()
    start = torch.full((rows,), v, dtype=torch.int64, device=d.device)

    def step(token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        state = state if token is None else token
        return table[state], state

    return step, start, v


def _sequence_options(d: Draw, v: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "eos": d.among([0, None, (0,)], [v + 5, -1, "x"]),
        "max_len": d.among([1, 2, 3], [0, -1, 2.5, None], 0.03),
    }
    if d.chance(0.2):
        options["tau"] = d.tau()
    if d.chance(0.2):
        options["mask"] = d.mask((v,))
    if d.chance(0.1):
        options["min_len"] = d.among([1, 2], [-1, 9])
    return options


def _search(name: str) -> None:
    @target(name)
    def _(d: Draw) -> Any:
        step, start, v = _model(d)
        options = _sequence_options(d, v)
        if name != "beam_search":
            options["generator"] = d.generator()
        found = getattr(ag, name)(step, start, d.count(5), **options)
        if name == "stochastic_beam_search" and d.chance(0.5):
            kind = d.choice(["unordered", "threshold", "ordered"])
            try:
                return found.weights(kind), found.expectation(lambda s: s.length.double())
            except (AttributeError, KeyError):
                return found
        return found


for _name in ("stochastic_beam_search", "beam_search", "ancestral_sample", "arithmetic_sample"):
    _search(_name)


@target("UniqueSampler")
def _(d: Draw) -> Any:
    step, start, v = _model(d)
    sampler = ag.UniqueSampler(step, start, **_sequence_options(d, v), generator=d.generator())
    return sampler.draw(d.count(4)), sampler.draw(2)


@target("rollout")
def _(d: Draw) -> Any:
    step, start, v = _model(d)
    tokens = d.labels((len(start), d.integer(0, 2)), v)
    options = _sequence_options(d, v)
    reward = d.among([lambda t, n: n.double()], [lambda t, n: n.double() * NAN, lambda t, n: None])
    return ag.rollout(step, start, tokens, reward, d.count(3), **options, generator=d.generator())


@target("sequence_log_prob")
def _(d: Draw) -> Any:
    step, start, v = _model(d)
    tokens = d.labels((len(start), 2, 3), v)
    length = d.labels((len(start), 2), 4)
    return ag.sequence_log_prob(step, start, tokens, length, eos=d.choice([None, 0]))


def _log_p(d: Draw) -> Tensor:
    """Log-probabilities of some of the items, mostly."""
    x, _, _ = _row(d)
    if d.chance(0.2) or not x.is_floating_point():
        return x
    d.leaves = [x.detach().log_softmax(-1).requires_grad_()]  # half precision may not hold the way back
    return d.leaves[0]


@target("plackett_luce_log_prob")
def _(d: Draw) -> Any:
    return ag.plackett_luce_log_prob(_log_p(d))


@target("log_prob_set")
def _(d: Draw) -> Any:
    return ag.log_prob_set(_log_p(d))


@target("leave_one_out_log_ratio")
def _(d: Draw) -> Any:
    return ag.leave_one_out_log_ratio(_log_p(d), order=d.among([1, 2], [0, 3, "x"]))


@target("hindsight_gumbels")
def _(d: Draw) -> Any:
    return ag.hindsight_gumbels(_log_p(d), generator=d.generator())


@target("lazy_gumbel_topk")
def _(d: Draw) -> Any:
    batch, n, m = d.choice([(), (2,), (0,)]), d.integer(3, 12), d.integer(1, 3)
    logits = d.scores((*batch, n)).detach()
    if logits.dim() == 0 or not logits.is_floating_point() or d.device == "meta":
        top, ids = logits[..., :m], torch.zeros(*batch, m, dtype=torch.int64, device=d.device)
    else:
        top, ids = logits.topk(m)
    bound = top.amin(-1) if m and top.is_floating_point() else 0.0
    lookup = d.among([lambda i: logits.gather(-1, i)], [lambda i: i, lambda i: None])
    return ag.lazy_gumbel_topk(
        top, ids, bound, n, lookup, d.count(n), generator=d.generator()
    )._asdict()


@target("GumbelTopKStream")
def _(d: Draw) -> Any:
    n = d.size(1, 30)
    k, seed = d.among([1, 3, 40], [0, -1, 2.5, None]), d.among([0, 2**70], [1.5])
    stream, other = ag.GumbelTopKStream(k, seed), ag.GumbelTopKStream(k, seed)
    x = d.scores((n,)).detach()
    stream.update(d.among([0, 2**62, -5], [2**63, 1.5, "x"]), x)
    other.update(10**6, weights=d.tensor((n,), values=lambda s, g: torch.rand(s, generator=g)))
    return stream.merge(other).result()._asdict()


@target("WeightedStreamSampler")
def _(d: Draw) -> Any:
    weights = d.tensor((d.size(1, 9),), values=lambda s, g: torch.rand(s, generator=g))
    options = {"replacement": d.choice([True, False]), "seed": d.among([0, 5], [1.5])}
    return ag.WeightedStreamSampler(weights, d.count(9), **options).draw()
