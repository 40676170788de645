r"""The models of the recipe `swor`, and the quantities that it estimates from their samples.

A model is a step function, a state and a reward; its output layer has a bias $b$ that stands for all parameters: the
gradient of $\mathbb{E} f$ is taken for it, with a copy of $b$ for every row of a batch, so that each row has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import argrad as ag
from argrad.recipes.data import pronouncer

Step = Callable[[Tensor | None, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Model:
    """A sequence model with a target.

    Attributes:
        step: as `ag.stochastic_beam_search` takes it, with a state `(bias, ...)`.
        start: the state of one row, without the bias.
        target: tokens that the reward compares with.
        vocabulary: number of tokens.
        eos: the token that ends a sequence.
        max_len: the largest number of tokens.
        tau: temperature of the softmax.
    """

    step: Step
    start: Tensor
    target: Tensor
    vocabulary: int
    eos: int
    max_len: int
    tau: float

    @property
    def options(self) -> dict[str, Any]:
        """What every sampler gets."""
        return {"eos": self.eos, "max_len": self.max_len, "tau": self.tau}

    def state(self, rows: int, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of that many rows, each with its own bias (0 by default)."""
        if bias is None:
            bias = torch.zeros(rows, self.vocabulary)
        return bias, self.start.expand(rows, -1)

    def reward(self, sample: ag.Sequences) -> Tensor:
        """Of every sequence of a sample, `(batch, k)`."""
        return bleu(sample.tokens, sample.length, self.target, self.vocabulary)

    def gradient(self, sample: Any, **options: Any) -> Tensor:
        """The estimate that a sample gives of the gradient of the mean reward, `(batch, vocabulary)`."""
        rows = sample.tokens.shape[0]
        bias = torch.zeros(rows, self.vocabulary, requires_grad=True)
        log_prob = ag.sequence_log_prob(
            self.step, self.state(rows, bias), sample.tokens, sample.length, tau=self.tau
        )
        total = sample.surrogate(self.reward(sample), log_prob, **options).sum()
        return torch.autograd.grad(total, bias)[0].double()


# ---- the reward ------------------------------------------------------------------------------------


def bleu(tokens: Tensor, length: Tensor, target: Tensor, vocabulary: int) -> Tensor:
    r"""Smoothed BLEU-2 of sequences `(*batch, L)` for one target: $\mathrm{BP} \sqrt{p_1 p_2}$, in (0, 1].

    $p_n$ is the share of n-grams that occur in the target too (each at most as often as there), one added to both
    counts; $\mathrm{BP} = e^{\min(0, 1 - |t| / |s|)}$.
    """
    place = torch.arange(tokens.shape[-1])
    pairs = tokens[..., :-1] * vocabulary + tokens[..., 1:]
    target_pairs = target[:-1] * vocabulary + target[1:]
    p1 = _precision(tokens, place < length[..., None], target)
    p2 = _precision(pairs, place[1:] < length[..., None], target_pairs)
    brevity = (1 - len(target) / length.double()).clamp(max=0).exp()
    return brevity * (p1 * p2).sqrt()


def _precision(grams: Tensor, real: Tensor, target: Tensor) -> Tensor:
    same = grams[..., :, None] == grams[..., None, :]
    earlier = torch.ones(grams.shape[-1], grams.shape[-1], dtype=torch.bool).tril(-1)
    before = (same & earlier).sum(-1)  # how often this n-gram came already
    there = (grams[..., None] == target).sum(-1)
    hits = ((before < there) & real).sum(-1)
    return (hits + 1).double() / (real.sum(-1) + 1)


# ---- a model trained here ----------------------------------------------------------------------------

WORDS = ["abcab", "abd", "acbd", "ba", "bcd", "cab", "cabd", "d", "dab", "dcba", "dda", "bbca"]
LETTERS = ".abcd"  # the full stop ends a word
MAX_LEN = 5  # 1365 sequences in all


class Speller(nn.Module):
    """A GRU that spells words of four letters."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.hidden = hidden
        self.embed, self.cell = nn.Embedding(len(LETTERS), hidden), nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, len(LETTERS))

    def step(self, token: Tensor | None, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        """One more letter."""
        bias, h = state
        token = torch.zeros(len(h), dtype=torch.int64) if token is None else token
        h = self.cell(self.embed(token), h)
        return self.out(h) + bias, (bias, h)


def speller(tau: float, steps: int, seed: int = 0) -> Model:
    """Trained by maximum likelihood on a dozen words, word n in proportion to 1/n."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net, target = Speller(), _letters(WORDS[0])
        tokens = torch.stack([nn.functional.pad(_letters(w), (0, MAX_LEN))[:MAX_LEN] for w in WORDS])
        length = torch.tensor([min(len(w) + 1, MAX_LEN) for w in WORDS])
        share = (1 / torch.arange(1.0, len(WORDS) + 1)).log().expand(64, -1)
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for _ in range(steps):
            n = ag.gumbel_max(share)
            state = torch.zeros(64, len(LETTERS)), torch.zeros(64, net.hidden)
            log_prob = ag.sequence_log_prob(net.step, state, tokens[n, None], length[n, None])
            optimizer.zero_grad()
            (-log_prob.mean()).backward()
            optimizer.step()
    net.requires_grad_(False)
    return Model(net.step, torch.zeros(1, net.hidden), target, len(LETTERS), 0, MAX_LEN, tau)


def _letters(word: str) -> Tensor:
    return torch.tensor([LETTERS.index(letter) for letter in word + "."])[:MAX_LEN]


# ---- a model from a package --------------------------------------------------------------------------


def pronunciations(word: str, tau: float) -> Model:
    """Of one word by the package g2p-en; the target is what beam search of width 8 finds."""
    net = pronouncer.Pronouncer().requires_grad_(False)

    def step(token: Tensor | None, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Any]:
        bias, h = state
        logits, h = net.step(token, h)
        return logits + bias, (bias, h)

    size, end, longest = len(pronouncer.PHONEMES), pronouncer.END, 20
    start = net.read(word)
    found = ag.beam_search(net.step, start, 8, eos=end, max_len=longest)
    target = found.tokens[0, 0, : int(found.length[0, 0])]
    return Model(step, start, target, size, end, longest, tau)
