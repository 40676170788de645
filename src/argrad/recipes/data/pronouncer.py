"""Letters to phonemes: the encoder-decoder of the package g2p-en (Apache-2.0), read from its wheel."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from argrad.recipes.data.wheels import unpack

VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [*"BDFGKLMNPRSTVWYZ", "CH", "DH", "HH", "JH", "NG", "SH", "TH", "ZH"]
SOUNDS = sorted([v + stress for v in VOWELS for stress in "012"] + CONSONANTS + ["UW"])
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *SOUNDS]
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
START, END = 2, 3


class Pronouncer(nn.Module):
    """GRU in, GRU out; 0.8 million weights."""

    def __init__(self) -> None:
        super().__init__()
        weights = {
            k: torch.from_numpy(v) for k, v in np.load(unpack("g2p_en", "checkpoint20.npz")).items()
        }
        self.letters = nn.Embedding.from_pretrained(weights["enc_emb"])
        self.sounds = nn.Embedding.from_pretrained(weights["dec_emb"])
        self.reader, self.speaker = nn.GRUCell(256, 256), nn.GRUCell(256, 256)
        self.out = nn.Linear(256, len(PHONEMES))
        for cell, name in ((self.reader, "enc"), (self.speaker, "dec")):
            state = {
                f"{k}_{i}": weights[f"{name}_{k[0]}_{i}"]
                for k in ("weight", "bias")
                for i in ("ih", "hh")
            }
            cell.load_state_dict(state)
        self.out.load_state_dict({"weight": weights["fc_w"], "bias": weights["fc_b"]})

    @torch.no_grad()
    def read(self, word: str) -> Tensor:
        """The state after the letters of a word."""
        state = torch.zeros(1, 256)
        for letter in [*word, "</s>"]:
            state = self.reader(self.letters(torch.tensor([LETTERS.index(letter)])), state)
        return state

    def step(self, sound: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        """One more sound."""
        if sound is None:
            sound = torch.full((len(state),), START)
        state = self.speaker(self.sounds(sound), state)
        return self.out(state), state
