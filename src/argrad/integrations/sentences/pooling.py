r"""From hidden states of tokens to one vector of the sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from argrad.integrations.sentences.gate import check_choice


class Pooling(nn.Module):
    r"""One vector for a sentence, $e = \sum_i w_i h_i / \sum_i w_i$ with the gate as weights $w$.

    | kind | $h$ |
    |---|---|
    | `cls` | the first token of the last layer; the gate does not enter |
    | `avg` | the last layer |
    | `avg-top2` | the mean of the last two layers |
    | `avg-first-last` | the mean of the first and the last layer (of the encoder: not the embeddings) |
    | `learned` | the last layer, $w_i \propto g_i \exp(a^\top \tanh(W [x_i; h_i]))$, $x$ the input embeddings |

    Args:
        kind: one of the table.
        hidden_size: width of the encoder; used by `learned`.

    Examples:
        >>> import torch
        >>> from argrad.integrations.sentences import Pooling
        >>> layers = (torch.zeros(1, 3, 2), torch.arange(6.0).view(1, 3, 2))
        >>> Pooling("avg", 2)(layers, torch.tensor([[1.0, 0.0, 1.0]]))
        tensor([[2., 3.]])

    References: [gao2021].
    """

    def __init__(self, kind: str, hidden_size: int) -> None:
        super().__init__()
        check_choice("Pooling", "kind", kind, POOLINGS)
        self.kind = kind
        self.attend = _Attend(hidden_size) if kind == "learned" else None

    @property
    def needs_layers(self) -> bool:
        """Whether hidden states of all layers are used."""
        return self.kind in ("avg-top2", "avg-first-last", "learned")

    def forward(self, layers: Sequence[Tensor], weights: Tensor) -> Tensor:
        """Hidden states of embeddings and layers, each `(batch, length, d)`, and weights -> `(batch, d)`."""
        if self.kind == "cls":
            return layers[-1][:, 0]
        if self.attend is not None:
            weights = self.attend(layers[0], layers[-1], weights)
        return _mean(_STATES[self.kind](layers), weights)

    def extra_repr(self) -> str:
        """The kind."""
        return repr(self.kind)


class _Attend(nn.Module):
    """Weights of tokens from their input and output; proportional to the gate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * size, size)
        self.score = nn.Linear(size, 1, bias=False)
        nn.init.zeros_(self.score.weight)  # starts as the mean

    def forward(self, first: Tensor, last: Tensor, weights: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.mix(torch.cat([first, last], -1))))[..., 0]
        highest = scores.detach().amax(-1, keepdim=True)  # only ratios of weights count
        return weights * torch.exp(scores - highest)


def _mean(states: Tensor, weights: Tensor) -> Tensor:
    weights = weights.to(states.dtype)
    total = weights.sum(-1, keepdim=True).clamp_min(torch.finfo(states.dtype).tiny)
    return (states * weights[..., None]).sum(1) / total


_STATES: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "avg": lambda layers: layers[-1],
    "avg-top2": lambda layers: (layers[-1] + layers[-2]) / 2,
    "avg-first-last": lambda layers: (layers[1] + layers[-1]) / 2,
    "learned": lambda layers: layers[-1],
}
POOLINGS = ("cls", *_STATES)
