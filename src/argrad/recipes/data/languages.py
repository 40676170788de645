r"""Languages that are generated, so that what a model should find in them is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Items whose laws over all words are held at once: a few dozen megabytes.
_AT_ONCE = 2**23


@dataclass(frozen=True)
class WalkLanguage:
    r"""Words with known vectors, for embeddings (after the random-walk model of Arora et al. 2016).

    A sentence has a topic $c \sim N(0, I)$, and its words are independent given it,
    $$ p(w \mid c) \propto \exp(b_w + \langle x_w, c \rangle), \qquad x_{(s, f)} = e_s + e_f. $$
    A word is a stem in a form (as *king*, *queens*), and its vector the sum of theirs. The pointwise mutual
    information of two words of a sentence is nearly $\langle x_w, x_{w'} \rangle$, and analogies hold by construction:
    $(s, f)$ is to $(s, f')$ as $(s', f)$ is to $(s', f')$.

    Attributes:
        sentences: word numbers, `(sentences, length)`; word (s, f) has number `s * forms + f`.
        vectors: $x$, `(stems * forms, d)`.
        forms: how many a stem has.
    """

    sentences: Tensor
    vectors: Tensor
    forms: int


def walk_language(
    tokens: int, *, stems: int = 200, forms: int = 5, d: int = 20, length: int = 10, seed: int = 0
) -> WalkLanguage:
    """Generate `tokens` words in sentences of `length`, with Zipf frequencies."""
    g = torch.Generator().manual_seed(seed)
    # lengths of about 1.2 and 0.9: the mutual information of two words is of size 1
    stem = 1.2 * torch.randn(stems, 1, d, generator=g) / math.sqrt(d)
    form = 0.9 * torch.randn(1, forms, d, generator=g) / math.sqrt(d)
    x = (stem + form).reshape(-1, d)
    rank = torch.randperm(len(x), generator=g) + 1
    b = -rank.log() - x.square().sum(-1) / 2  # E exp <x, c> = exp |x|^2 / 2: frequencies are 1 / rank
    parts = []
    for topics in torch.randn(math.ceil(tokens / length), d, generator=g).split(_AT_ONCE // len(x)):
        law = (topics @ x.T + b).softmax(-1)
        parts.append(torch.multinomial(law, length, replacement=True, generator=g))
    return WalkLanguage(torch.cat(parts), x, forms)


@dataclass(frozen=True)
class TrigramLanguage:
    r"""A language whose next word depends on the kinds of the last two, with a known law, for language models.

    $$ p(w \mid u, v) \propto \exp(b_w + \langle r_w, a_{\mathrm{kind}(u)} + a'_{\mathrm{kind}(v)} \rangle) $$
    A log-bilinear model can represent it. As only kinds matter, the law is a table that is drawn from quickly.

    Attributes:
        kind: of each word, `(words,)`.
        log_law: log p, float32, `(kinds of u, kinds of v, words)`.
    """

    kind: Tensor
    log_law: Tensor

    def sample(self, tokens: int, generator: torch.Generator, streams: int = 500) -> Tensor:
        """About `tokens` words: texts that were written side by side, `(streams, length)`."""
        kinds, _, words = self.log_law.shape
        row = torch.arange(kinds**2, dtype=torch.float64)[:, None]
        # distribution functions one behind the other, row i from i to i + 1: one search for all contexts
        upper = self.log_law.double().softmax(-1).cumsum(-1).clamp(max=1.0).reshape(-1, words) + row
        u, v = torch.randint(kinds, (2, streams), generator=generator)
        columns = []
        for _ in range(math.ceil(tokens / streams)):
            context = u * kinds + v
            x = context + torch.rand(streams, dtype=torch.float64, generator=generator)
            place = torch.searchsorted(upper.view(-1), x)
            w = (place - context * words).clamp(max=words - 1)  # where a sum is rounded below 1
            columns.append(w)
            u, v = v, self.kind[w]
        return torch.stack(columns, 1)

    def perplexity(self, texts: Tensor) -> float:
        """Of the true law on texts `(streams, length)`: no model can be expected to do better."""
        u, v, w = self.kind[texts[:, :-2]], self.kind[texts[:, 1:-1]], texts[:, 2:]
        return math.exp(-self.log_law[u, v, w].double().mean().item())


def trigram_language(words: int, *, kinds: int = 20, d: int = 16, seed: int = 0) -> TrigramLanguage:
    """Make one, with Zipf frequencies; knowing the last two words divides the perplexity by three or so."""
    g = torch.Generator().manual_seed(seed)
    of_word = torch.randn(words, d, generator=g) / math.sqrt(d)
    of_kind = torch.randn(2, kinds, d, generator=g) * torch.tensor([0.8, 1.3])[:, None, None]
    h = of_kind[0][:, None] + of_kind[1]  # (kinds, kinds, d)
    rank = torch.arange(1, words + 1)
    log_law = (h @ of_word.T - rank.log()).log_softmax(-1)
    return TrigramLanguage(torch.randint(kinds, (words,), generator=g), log_law)
