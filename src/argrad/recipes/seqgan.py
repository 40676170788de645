r"""SeqGAN on a synthetic truth (Yu et al. 2017), with the controls that an honest page needs.

$$ \nabla J = \mathbb{E}\Big[\sum_t Q_t \nabla \log p(s_t | s_{<t})\Big], \qquad
   Q_t = \mathbb{E}[D(s) \,|\, s_{\le t}] \text{ by roll-outs} $$

A writer is trained by maximum likelihood, then against a judge. Two numbers: NLL_oracle, how probable its sequences are
under the truth (quality), and NLL_generator, how probable true sequences are under the writer (coverage). Sharpening
lowers the first and raises the second, so both are shown, with maximum likelihood at several temperatures and with a
reward that says nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import report
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.seqgan_model import Judge, Writer, oracle
from argrad.recipes.training import Shuffled


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    vocabulary: int = option(1000, "tokens (the paper: 5000)", at_least=2)
    length: int = option(20, "of a sequence", at_least=2)
    size: int = option(32, "of embeddings and hidden states", at_least=1)
    filters: int = option(32, "of each width, of the judge", at_least=1)
    sequences: int = option(5000, "true sequences to train on (the paper: 10000)", at_least=1)
    batch: int = option(64, "sequences a step", at_least=2)
    mle_steps: int = option(3000, "of maximum likelihood", at_least=1)
    judge_steps: int = option(500, "of the judge before the game", at_least=1)
    game_steps: int = option(300, "of the game", at_least=1)
    judge_per_step: int = option(3, "steps of the judge for each of the writer", at_least=1)
    rollouts: int = option(8, "completions of each beginning (the paper: 16)", at_least=1)
    keep: float = option(0.8, "share of the roll-out policy that stays at a step", at_least=0)
    learning_rate: float = option(1e-2, "of maximum likelihood", above=0)
    game_rate: float = option(2e-3, "of the writer in the game", above=0)
    measured: int = option(16_000, "sequences that both numbers are measured on", at_least=1)
    temperatures: tuple[float, ...] = option(
        (1.0, 0.9, 0.8, 0.7), "of the writer after maximum likelihood"
    )


# ---- the writer's loss in the game, one for every column -----------------------------------------------


@dataclass
class Game:
    """What a loss may use."""

    writer: Writer
    policy: Writer  # for roll-outs, slowly updated
    judge: nn.Module
    config: Config
    noise: torch.Generator

    @torch.no_grad()
    def reward(self, tokens: Tensor) -> Tensor:
        """How real the judge finds sequences, 0 to 1."""
        return self.judge(tokens).sigmoid()


def _policy_gradient(game: Game, values: Callable[[Tensor], Tensor]) -> Tensor:
    """Tokens get the value of their own consequences, above the mean of the batch at the same place."""
    tokens = game.writer.write(game.config.batch, game.noise)
    q = values(tokens)
    advantage = q - (q.sum(0, keepdim=True) - q) / (len(q) - 1)
    return -(advantage * game.writer.log_prob(tokens)).sum(-1).mean()


def _seqgan(game: Game) -> Tensor:
    def values(tokens: Tensor) -> Tensor:
        c = game.config
        return ag.rollout(
            game.policy.step,
            game.policy.state(len(tokens)),
            tokens,
            lambda s, length: game.reward(s),
            c.rollouts,
            eos=None,
            max_len=c.length,
            generator=game.noise,
        ).float()

    return _policy_gradient(game, values)


def _whole_sequence(game: Game) -> Tensor:
    return _policy_gradient(game, lambda s: game.reward(s)[:, None].expand(s.shape))


def _constant(game: Game) -> Tensor:
    """The control: every token of every sequence is praised alike."""
    tokens = game.writer.write(game.config.batch, game.noise)
    return -game.writer.log_prob(tokens).sum(-1).mean()


def _unordered(game: Game) -> Tensor:
    """Sets of four different sequences a row, with the built-in baseline."""
    rows, writer = max(game.config.batch // 4, 1), game.writer
    sample = ag.stochastic_beam_search(
        writer.step, writer.state(rows), 4, eos=None, max_len=game.config.length, generator=game.noise
    )
    log_prob = writer.log_prob(sample.tokens.flatten(0, 1)).sum(-1).view(rows, 4)
    return -sample.surrogate(game.reward(sample.tokens), log_prob).mean()


def _relaxed(estimator: ag.Estimator) -> Callable[[Game], Tensor]:
    def loss(game: Game) -> Tensor:
        points = game.writer.write_relaxed(estimator, game.config.batch, game.noise)
        return softplus(-game.judge(points)).mean()

    return loss


MLE = "MLE"
LOSSES: dict[str, Callable[[Game], Tensor]] = {
    "SeqGAN": _seqgan,
    "no roll-outs": _whole_sequence,
    "constant reward": _constant,
    "unordered set (4)": _unordered,
    "Gumbel-softmax": _relaxed(ag.Relaxed(tau=1.0)),
    "ST Gumbel-softmax": _relaxed(ag.GumbelST(tau=1.0)),
    "ReinMax": _relaxed(ag.ReinMax()),
}
COLUMNS = (MLE, *LOSSES)
PUBLISHED = {MLE: 9.038, "SeqGAN": 8.736}  # NLL_oracle with a vocabulary of 5000; random: 10.31


def cells(config: Config) -> list[Cell]:
    """One for every way; the published numbers belong to the published vocabulary."""
    known = {name.lower(): name for name in COLUMNS}
    for name in config.columns:
        if name.lower() not in known:
            raise InputError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}.")
    wanted = {name.lower() for name in config.columns} or set(known)
    published = PUBLISHED if config.vocabulary == 5000 else {}
    return [Cell("", name, published.get(name)) for low, name in known.items() if low in wanted]


# ---- training ----------------------------------------------------------------------------------------


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Maximum likelihood, then the game of the cell."""
    truth = oracle(config.vocabulary, config.length, config.size, seed=1)
    data = truth.write(config.sequences + config.measured, run.generator(1))
    seen, held_out = data[: config.sequences], data[config.sequences :]
    writer = Writer(config.vocabulary, config.length, config.size)
    batches = Shuffled(seen, config.batch, run.generator(2))
    likelihood(config, writer, batches, run)
    if cell.column == MLE:
        return _sweep(config, truth, writer, held_out, run)
    before = measure(config, truth, writer, held_out, run)
    play(config, writer, batches, LOSSES[cell.column], run)
    after = measure(config, truth, writer, held_out, run)
    return after | {f"{name}, MLE": value for name, value in before.items()}


def likelihood(config: Config, writer: Writer, batches: Shuffled, run: Run) -> None:
    """The start of every column."""
    optimizer = torch.optim.Adam(writer.parameters(), config.learning_rate)
    state = {"writer": writer, "optimizer": optimizer, "batches": batches}
    for _ in run.steps(config.mle_steps, phase="mle", **state):
        loss = -writer.log_prob(batches.next()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(nll=loss)


def play(
    config: Config, writer: Writer, batches: Shuffled, loss_of: Callable[[Game], Tensor], run: Run
) -> None:
    """First the judge alone, then both in turn."""
    noise = run.generator(3)
    judge = Judge(config.vocabulary, config.length, config.size, config.filters)
    game = Game(writer, copy.deepcopy(writer).requires_grad_(False), judge, config, noise)
    ours = torch.optim.Adam(writer.parameters(), config.game_rate)
    theirs = torch.optim.Adam(judge.parameters(), 1e-3)
    parts = {"judge": judge, "theirs": theirs, "batches": batches, "noise": noise}
    for _ in run.steps(config.judge_steps, phase="judge", **parts):
        run.log(judge=_judge_step(game, batches, theirs))
    parts |= {"writer": writer, "policy": game.policy, "ours": ours}
    for _ in run.steps(config.game_steps, phase="game", **parts):
        judge.eval()
        loss = loss_of(game)
        ours.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(writer.parameters(), 5.0)
        ours.step()
        _follow(game.policy, writer, config.keep)
        for _ in range(config.judge_per_step):
            run.log(judge=_judge_step(game, batches, theirs))
        run.log(writer=loss)


def _judge_step(game: Game, batches: Shuffled, optimizer: torch.optim.Optimizer) -> Tensor:
    real = batches.next()
    both = torch.cat([real, game.writer.write(len(real), game.noise)])
    labels = torch.cat([torch.ones(len(real)), torch.zeros(len(real))])
    game.judge.train()
    loss = binary_cross_entropy_with_logits(game.judge(both), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def _follow(policy: Writer, writer: Writer, keep: float) -> None:
    for old, new in zip(policy.parameters(), writer.parameters(), strict=True):
        old.lerp_(new, 1 - keep)


# ---- evaluation --------------------------------------------------------------------------------------


@torch.no_grad()
def measure(
    config: Config, truth: Writer, writer: Writer, held_out: Tensor, run: Run, tau: float = 1.0
) -> dict[str, float]:
    """Both numbers, in nats a token."""
    g = run.generator(4)
    written = writer.write(config.measured, g, tau)
    return {
        "NLL_oracle": _nll(truth, written),
        "NLL_generator": _nll(writer, held_out, tau),
    }


def _nll(model: Writer, tokens: Tensor, tau: float = 1.0) -> float:
    parts = [model.log_prob(part, tau).mean(-1) for part in tokens.split(500)]
    return -torch.cat(parts).mean().item()


def _sweep(
    config: Config, truth: Writer, writer: Writer, held_out: Tensor, run: Run
) -> dict[str, float]:
    found = measure(config, truth, writer, held_out, run)
    for tau in config.temperatures:
        at = measure(config, truth, writer, held_out, run, tau)
        found |= {f"{name}, tau = {tau:g}": value for name, value in at.items()}
    own = truth.write(config.measured, run.generator(5))
    return found | {"NLL_oracle, truth": _nll(truth, own)}


# ---- the report --------------------------------------------------------------------------------------


def claims(summary: Summary) -> list[Claim]:
    """The game improves the number that the paper reports."""
    found = []
    c = summary.find("", "SeqGAN")
    if c is not None:
        before, after = c.mean("NLL_oracle, MLE"), c.mean()
        text = "SeqGAN has a lower NLL_oracle than the maximum likelihood it starts from"
        found.append(Claim(text, after < before, f"{after:.3f} and {before:.3f}"))
    return found


def figures(summary: Summary) -> Sequence[str]:
    """Quality against coverage: the ways, and maximum likelihood at several temperatures."""
    points = [(c.cell.column, c.mean(), c.mean("NLL_generator")) for c in summary.cells]
    mle = summary.find("", MLE)
    if mle is not None:
        taus = [name.rpartition(" ")[2] for name in mle.metrics if name.startswith("NLL_oracle, tau")]
        points += [
            (
                f"{MLE} at temperature {t}",
                *(mle.mean(f"{n}, tau = {t}") for n in ("NLL_oracle", "NLL_generator")),
            )
            for t in taus
        ]
    rows = [report.Row(name, "", i, [a, b]) for i, (name, a, b) in enumerate(points)]
    text = "Lower is better in both; a way that gains in the first and loses in the second has only become surer."
    table = report.table(["", "NLL_oracle", "NLL_generator"], rows)
    return [report.section("Quality and coverage", text, table)]


RECIPE = Recipe(
    name="seqgan",
    title="SeqGAN on a synthetic truth, with its controls",
    about=(
        "The truth is an LSTM with weights from N(0, 1) that we draw ourselves; the writer is an LSTM 32/32, the judge "
        "a convolutional network with a highway layer. All columns start from the same maximum likelihood and differ "
        "in the writer's gradient: roll-outs (SeqGAN), the reward of the whole sequence, a constant reward, sets of "
        "four different sequences, or a path through the judge. Differences by default from the paper: a vocabulary of "
        "1000 instead of 5000, 5000 sequences instead of 10000, fewer steps, 8 roll-outs instead of 16, and the mean "
        "of the batch as a baseline, which the paper's code does not subtract."
    ),
    source="Yu, Zhang, Wang and Yu 2017, Table 1 (as quoted in later work); Caccia et al. 2020 for the controls",
    metric="NLL_oracle",
    unit="NLL_oracle, nats a token",
    config=Config(),
    smoke=Config(
        columns=(MLE, "SeqGAN", "unordered set (4)", "ReinMax"),
        vocabulary=30,
        length=6,
        size=8,
        filters=4,
        sequences=200,
        batch=16,
        mle_steps=20,
        judge_steps=4,
        game_steps=3,
        judge_per_step=1,
        rollouts=2,
        measured=100,
        temperatures=(1.0, 0.8),
    ),
    full=Config(
        vocabulary=5000,
        sequences=10_000,
        filters=100,
        mle_steps=18_700,
        judge_steps=7800,
        game_steps=150,
        judge_per_step=15,
        rollouts=16,
        measured=10_000,
    ),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (1.0, 12.0)}},
    claims=claims,
    figures=figures,
    digits=3,
)
