"""Images as rows of pixels: MNIST, its fixed binarisation, Fashion-MNIST, and scikit-learn's digits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from argrad.recipes.data import fetch, places
from argrad.recipes.data.idx import read_idx
from argrad.recipes.data.places import DataError

Name = Literal["digits", "mnist", "binarized-mnist", "fashion-mnist"]  # the type of a recipe's option


@dataclass(frozen=True)
class Images:
    """Rows of pixels in three parts.

    Attributes:
        train: uint8, shape `(n, side * side)`; 0 to `top`.
        valid: the same, to choose with.
        test: the same, to report.
        labels: of the three parts, int64; empty when the set has none.
        side: pixels of an edge.
        top: the largest value: 255 for grey, 1 for binary images.
        source: a sentence on where they came from.
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    labels: tuple[Tensor, ...]
    side: int
    top: int
    source: str

    def binarized(self) -> Images:
        """Fixed binarisation: every pixel once black with probability its intensity, by generator seed 0."""
        if self.top == 1:
            return self
        g = torch.Generator().manual_seed(0)
        train, valid, test = (_draw(part, self.top, g) for part in (self.train, self.valid, self.test))
        source = f"{self.source}; binarised once with torch generator seed 0"
        return Images(train, valid, test, self.labels, self.side, 1, source)

    def as_floats(self, rows: Tensor) -> Tensor:
        """Pixels from 0 to 1."""
        return rows.float() if self.top == 1 else rows.float() / self.top


def _draw(pixels: Tensor, top: int, g: torch.Generator) -> Tensor:
    chunks = [
        (torch.rand(c.shape, generator=g) < c.float() / top).to(torch.uint8) for c in pixels.split(5000)
    ]
    return torch.cat(chunks)


def load(name: str) -> Images:
    """A data set by name.

    `binarized-mnist` is the published fixed binarisation if its files are here (MATLAB files, key `X`), otherwise
    MNIST binarised once with a stated seed; `source` says which.
    """
    if name == "digits":
        return _digits()
    if name == "binarized-mnist":
        folder = places.find("binarized_mnist", "binarized_mnist_train.mat")
        return load("mnist").binarized() if folder is None else _matlab(folder)
    if name not in _IDX:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(get_args(Name))}.")
    return _idx(name)


# ---- MNIST and Fashion-MNIST -----------------------------------------------------------------------


@dataclass(frozen=True)
class _IdxSet:
    torchvision: str  # the folder that torchvision keeps it in
    urls: tuple[str, ...]  # folders that have the gzipped files
    md5: tuple[str, ...]  # of the unpacked files


_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_IDX = {
    "mnist": _IdxSet(
        "MNIST/raw",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    "fashion-mnist": _IdxSet(
        "FashionMNIST/raw",
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
}
_VALID = 10_000  # the last of the training images


def _idx(name: str) -> Images:
    found = (places.find(f, _FILES[0], f"{_FILES[0]}.gz") for f in (name, _IDX[name].torchvision))
    folder = next((f for f in found if f is not None), None)
    pixels, labels, test, test_labels = (
        _idx_file(name, folder, file, md5) for file, md5 in zip(_FILES, _IDX[name].md5, strict=True)
    )
    x, y = _rows(pixels), torch.from_numpy(labels.astype(np.int64))
    parts = (y[:-_VALID], y[-_VALID:], torch.from_numpy(test_labels.astype(np.int64)))
    source = f"{name} from {folder or places.cache() / name}"
    return Images(x[:-_VALID], x[-_VALID:], _rows(test), parts, 28, 255, source)


def _rows(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.reshape(len(pixels), -1).copy())


def _idx_file(name: str, folder: Path | None, file: str, md5: str) -> np.ndarray:
    if folder is not None and folder != places.cache() / name:
        for path in (folder / file, folder / f"{file}.gz"):
            if path.is_file():
                return read_idx(path, md5)
    return fetch.fetch(name, _IDX[name].urls, f"{file}.gz", partial(read_idx, md5=md5))


def _matlab(folder: Path) -> Images:
    names = ("train", "valid", "test")
    train, valid, test = (_matlab_file(folder / f"binarized_mnist_{name}.mat") for name in names)
    return Images(
        train, valid, test, (), 28, 1, f"fixed binarisation of Salakhutdinov and Murray from {folder}"
    )


def _matlab_file(path: Path) -> Tensor:
    from scipy.io import loadmat

    try:
        pixels = np.asarray(loadmat(path)["X"])
    except Exception as error:  # a damaged file fails in many ways
        reason = "there is no X in it" if isinstance(error, KeyError) else error
        raise DataError(
            f"cannot read {path} as a MATLAB file with a matrix X: {reason}. Copy it anew."
        ) from None
    black = pixels.astype(bool)
    if pixels.ndim != 2 or pixels.shape[1] != 784 or not (black == pixels).all():
        raise DataError(
            f"{path} must hold rows of 784 zeros and ones; got {pixels.dtype} of shape {pixels.shape}. Copy it anew."
        )
    return torch.from_numpy(np.ascontiguousarray(black).view(np.uint8))  # MATLAB keeps columns together


# ---- what comes with scikit-learn --------------------------------------------------------------------


def _digits() -> Images:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)  # from 0 to 16
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    x, y = torch.as_tensor(pixels).to(torch.uint8)[order], torch.as_tensor(labels)[order]
    cut = (1300, 200, len(x) - 1500)
    train, valid, test = x.split(cut)
    return Images(train, valid, test, tuple(y.split(cut)), 8, 16, "8 x 8 digits of scikit-learn")
