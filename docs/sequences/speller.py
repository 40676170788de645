"""A small model to decode with: the letters of number words, where n comes up in proportion to 1/n."""

import torch
from torch import Tensor, nn

import argrad as ag

ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
STEMS = ["thir", "four", "fif", "six", "seven", "eigh", "nine"]
TEENS = ["ten", "eleven", "twelve"] + [stem + "teen" for stem in STEMS]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ENDS = ["", *("-" + one for one in ONES)]
WORDS = ONES + TEENS + [ten + end for ten in TENS for end in ENDS]  # 1, ..., 99
LETTERS = ".-abcdefghijklmnopqrstuvwxyz"  # the full stop ends a word
SHARE = 1 / torch.arange(1.0, 100)  # one comes 99 times as often as ninety-nine


class Speller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell = nn.Embedding(28, 32), nn.GRUCell(32, 64)
        self.out = nn.Linear(64, 28)

    def step(self, token: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        """What argrad asks of a model: the last tokens and a state in, logits and the next state out."""
        if token is None:
            token = torch.zeros(len(state), dtype=torch.int64)
        state = self.cell(self.embed(token), state)
        return self.out(state), state

    def start(self, rows: int = 1) -> Tensor:
        return torch.zeros(rows, 64)


def train(steps: int = 300) -> Speller:
    torch.manual_seed(0)
    model, length = Speller(), torch.tensor([len(word) + 1 for word in WORDS])
    tokens = torch.zeros(99, 14, dtype=torch.int64)
    for row, word in zip(tokens, WORDS, strict=True):
        row[: len(word)] = torch.tensor([LETTERS.index(letter) for letter in word])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        n = ag.gumbel_max(SHARE.log().expand(64, -1))
        log_prob = ag.sequence_log_prob(model.step, model.start(64), tokens[n, None], length[n, None])
        optimizer.zero_grad()
        (-log_prob.mean()).backward()
        optimizer.step()
    return model


def spell(tokens: Tensor) -> str:
    return "".join(LETTERS[t] for t in tokens.tolist()).partition(".")[0]
