"""Data sets: from a folder, from the cache, from a server; whatever is wrong with a file is a sentence."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import os
import re
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from argrad.recipes.data import Images, fetch, images, load, places
from argrad.recipes.data.idx import read_idx
from argrad.recipes.data.places import DataError
from argrad.recipes.files import StorageError

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = images._FILES
COUNTS = (10_030, 10_030, 20, 20)


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """A cache of its own, and no data beside the project."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("ARGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ARGRAD_DATA", raising=False)
    monkeypatch.setattr(fetch, "TIMEOUT", 5)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture(scope="module")
def small() -> dict[str, bytes]:
    """Files as those of MNIST, unpacked, with few images."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 256, (n, 28, 28) if "images" in name else n, dtype=np.uint8)
        for name, n in zip(FILES, COUNTS, strict=True)
    ]
    return {name: idx(array) for name, array in zip(FILES, arrays, strict=True)}


@pytest.fixture
def small_mnist(small, monkeypatch):
    """`mnist` stands for the small files; nothing can be downloaded."""
    md5 = tuple(hashlib.md5(data).hexdigest() for data in small.values())
    monkeypatch.setitem(images._IDX, "mnist", images._IdxSet("MNIST/raw", (), md5))
    return small


def fill(folder: Path, files: dict[str, bytes], pack: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / (f"{name}.gz" if pack else name)
        path.write_bytes(gzip.compress(data, 1, mtime=0) if pack else data)
    return folder


def check_small(found: Images, files: dict[str, bytes]) -> None:
    assert (found.side, found.top) == (28, 255)
    assert [len(part) for part in (found.train, found.valid, found.test)] == [30, 10_000, 20]
    assert [len(part) for part in found.labels] == [30, 10_000, 20]
    assert found.train.dtype == torch.uint8 and found.labels[0].dtype == torch.int64
    pixels = np.frombuffer(files[FILES[0]], np.uint8, offset=16).reshape(-1, 784)
    assert (torch.cat([found.train, found.valid]).numpy() == pixels).all()
    labels = np.frombuffer(files[FILES[3]], np.uint8, offset=8)
    assert (found.labels[2].numpy() == labels).all()
    assert (
        found.train.is_contiguous()
    )  # rows of an example together: drawing a batch is eight times faster


# ---- folders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_idx_files_from_a_folder(folder, pack, small_mnist, tmp_path, monkeypatch):
    fill(tmp_path / "data" / folder, small_mnist, pack)
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "data"))
    found = load("mnist")
    check_small(found, small_mnist)
    assert found.source == f"mnist from {tmp_path / 'data' / folder}"
    assert not (tmp_path / "cache").exists()


def test_the_order_of_places(small_mnist, tmp_path, monkeypatch):
    assert places.find("mnist", FILES[0]) is None
    beside = fill(tmp_path / "shared" / "data" / "mnist", small_mnist)  # ../shared/data
    assert load("mnist").source == "mnist from ../shared/data/mnist" and beside.exists()
    named = fill(tmp_path / "named" / "mnist", small_mnist)
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "named"))
    assert load("mnist").source == f"mnist from {named}"
    assert list(places.folders())[-2:] == [Path("/usr/share/datasets"), tmp_path / "cache"]


def test_the_cache_is_the_users_unless_it_is_named(monkeypatch):
    monkeypatch.delenv("ARGRAD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert places.cache() == Path("/somewhere/argrad")
    monkeypatch.setenv("ARGRAD_CACHE", "~/else")
    assert places.cache() == Path.home() / "else"


def test_a_folder_that_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "missing"))
    with pytest.raises(
        DataError, match=r"ARGRAD_DATA names .*missing, which is not a folder. Correct it"
    ):
        load("mnist")
    with pytest.raises(DataError, match=r"there is no data set 'mnits'; there are digits, mnist, bin"):
        load("mnits")


def test_without_pooch(monkeypatch, small_mnist, tmp_path):
    monkeypatch.delenv("ARGRAD_CACHE")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"downloads need pooch.*argrad\[recipes\].*ARGRAD_DATA"):
        load("mnist")
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "data"))
    fill(tmp_path / "data" / "mnist", small_mnist)
    monkeypatch.setattr(places, "cache", lambda: tmp_path / "cache")
    check_small(load("mnist"), small_mnist)


# ---- broken files --------------------------------------------------------------------------------

GOOD = idx(np.arange(6, dtype=np.uint8).reshape(2, 3))


def test_idx_arrays(tmp_path):
    for data in (GOOD, gzip.compress(GOOD, mtime=0)):
        (tmp_path / "file").write_bytes(data)
        assert read_idx(tmp_path / "file").tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "file").write_bytes(idx(np.zeros((0, 4), np.uint8)))
    assert read_idx(tmp_path / "file").shape == (0, 4)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is not an IDX file"),
        (b"<!doctype html><title>404</title>", "does not begin with two zero bytes"),
        (b"\0\0\x0d\1" + bytes(8), "holds IDX type 0x0d; expected unsigned bytes"),
        (GOOD[:9], "ends inside its header"),
        (GOOD[:-1], "says 2 x 3 = 6 bytes but has 5: it is truncated or damaged"),
        (GOOD + b"x", "but has 7"),
        (gzip.compress(GOOD, mtime=0)[:-9], "is damaged or truncated"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "is damaged or truncated"),
        (gzip.compress(GOOD, mtime=0)[:4] + b"x" * 30, "is damaged or truncated"),
        (idx(np.zeros((2, 3), np.uint8)), "not the one of that name (its md5 differs)"),
    ],
)
def test_broken_idx_files(data, sentence, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_idx(path, hashlib.md5(GOOD).hexdigest())
    text = str(caught.value)
    assert text.startswith(f"{path} ") and sentence in text
    assert text.endswith("Delete it and run again to download it, or copy it anew.")
    assert path.exists()  # a user's file is not touched


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*: No such file or directory"):
        read_idx(tmp_path / "missing")
    with pytest.raises(DataError, match=r"cannot read .*: Is a directory"):
        read_idx(tmp_path)


# ---- downloads -----------------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` on loopback; `cut` bytes at most of each, though it promises all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.asked: list[str] = []

    def handle_error(self, request, client_address):
        pass  # a client that went away

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path.rpartition("/")[2])
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as made:
        thread = threading.Thread(target=functools.partial(made.serve_forever, 0.01))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def online(server, small_mnist, monkeypatch):
    """The small files on the server, and `mnist` downloaded from there."""
    server.files = {f"{name}.gz": gzip.compress(data, 1, mtime=0) for name, data in small_mnist.items()}
    known = images._IDX["mnist"]
    monkeypatch.setitem(
        images._IDX,
        "mnist",
        images._IdxSet("MNIST/raw", (f"{server.url}/a", f"{server.url}/b"), known.md5),
    )
    return server


def in_cache(tmp_path: Path) -> set[str]:
    return {
        str(p.relative_to(tmp_path / "cache")) for p in (tmp_path / "cache").rglob("*") if p.is_file()
    }


def test_a_download_is_kept(online, small_mnist, tmp_path):
    check_small(load("mnist"), small_mnist)
    assert online.asked == [f"/a/{name}.gz" for name in FILES]
    assert in_cache(tmp_path) == {"mnist/lock", *(f"mnist/{name}.gz" for name in FILES)}
    check_small(load("mnist"), small_mnist)
    assert len(online.asked) == 4  # from the cache


def test_a_damaged_file_in_the_cache_is_downloaded_again(online, small_mnist, tmp_path):
    load("mnist")
    path = tmp_path / "cache" / "mnist" / f"{FILES[2]}.gz"
    path.write_bytes(path.read_bytes()[:100])
    check_small(load("mnist"), small_mnist)
    assert online.asked[4:] == [f"/a/{FILES[2]}.gz"]


def test_the_next_mirror_is_asked(online, small_mnist, monkeypatch):
    urls = ("http://127.0.0.1:9", f"{online.url}/b")  # nobody listens at the first
    monkeypatch.setitem(images._IDX, "mnist", images._IdxSet("", urls, images._IDX["mnist"].md5))
    check_small(load("mnist"), small_mnist)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda server: server.files.clear(), "/a: HTTP 404; "),
        (lambda server: setattr(server, "cut", 50), "/a: the connection broke off; "),
        (
            lambda server: server.files.update({f"{FILES[0]}.gz": gzip.compress(GOOD, mtime=0)}),
            "/a: what came is a whole IDX file, but not the one of that name (its md5 differs).",
        ),
        (
            lambda server: server.files.update(
                {f"{FILES[0]}.gz": server.files[f"{FILES[0]}.gz"][:1000]}
            ),
            "/a: what came is damaged or truncated",
        ),
    ],
    ids=["missing", "broken off", "wrong", "truncated"],
)
def test_what_a_server_can_do_wrong(spoil, reason, online, tmp_path):
    spoil(online)
    with pytest.raises(DataError) as caught:
        load("mnist")
    text = str(caught.value)
    assert text.startswith(
        f"{FILES[0]}.gz of 'mnist' is not here and could not be downloaded ({online.url}"
    )
    assert reason in text and "\n" not in text
    assert "Put the files of mnist into FOLDER/mnist and set ARGRAD_DATA=FOLDER" in text
    assert in_cache(tmp_path) == {"mnist/lock"}
    assert [path[:2] for path in online.asked] == ["/a", "/b"]


def test_no_network_at_all(small_mnist, tmp_path, monkeypatch):
    known = images._IDX["mnist"]
    monkeypatch.setitem(images._IDX, "mnist", images._IdxSet("", ("http://127.0.0.1:9",), known.md5))
    with pytest.raises(
        DataError, match=re.escape("(http://127.0.0.1:9: no connection). Put the files")
    ):
        load("mnist")
    assert in_cache(tmp_path) == {"mnist/lock"}


def test_an_interrupted_download_leaves_nothing(online, tmp_path, monkeypatch):
    def interrupt(url, part):
        part.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_download", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load("mnist")
    assert in_cache(tmp_path) == {"mnist/lock"}


def test_what_a_killed_download_left_is_swept(online, small_mnist, tmp_path):
    (tmp_path / "cache" / "mnist").mkdir(parents=True)
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    (tmp_path / "cache" / "mnist" / f".argrad-{killed.pid}.part").write_bytes(b"half")
    check_small(load("mnist"), small_mnist)
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_several_processes_download_once(online, small_mnist):
    found: list[Images] = []
    threads = [threading.Thread(target=lambda: found.append(load("mnist"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(online.asked) == 4
    check_small(found[2], small_mnist)


def test_a_cache_that_cannot_be_written(online, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ARGRAD_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"cannot make .*file/mnist: .*Set ARGRAD_CACHE to a folder"):
        load("mnist")


# ---- binary images -------------------------------------------------------------------------------


def bits(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 2, (n, 784), dtype=np.uint8)


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_binarized_mnist_from_matlab_files(kind, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "binarized_mnist"
    folder.mkdir(parents=True)
    for n, name in enumerate(("train", "valid", "test"), 3):
        savemat(folder / f"binarized_mnist_{name}.mat", {"X": bits(n).astype(kind)})
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "data"))
    found = load("binarized-mnist")
    assert (found.side, found.top, found.labels) == (28, 1, ())
    for n, part in enumerate((found.train, found.valid, found.test), 3):
        assert part.dtype == torch.uint8 and part.is_contiguous() and (part.numpy() == bits(n)).all()
    assert found.source == f"fixed binarisation of Salakhutdinov and Murray from {folder}"
    assert found.binarized() is found
    assert found.as_floats(found.train).unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda p: p.write_bytes(b"no matlab"), "as a MATLAB file with a matrix X: "),
        (lambda p: savemat(p, {"Y": bits(3)}), "there is no X in it. Copy it anew."),
        (
            lambda p: savemat(p, {"X": bits(3)[:, 1:]}),
            "784 zeros and ones; got uint8 of shape (3, 783)",
        ),
        (lambda p: savemat(p, {"X": bits(3) * 0.5}), "784 zeros and ones; got float64"),
        (lambda p: (savemat(p, {"X": bits(99)}), p.write_bytes(p.read_bytes()[:300])), "MATLAB file"),
    ],
)
def test_broken_matlab_files(write, sentence, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "binarized_mnist"
    folder.mkdir(parents=True)
    write(folder / "binarized_mnist_train.mat")
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=re.escape(sentence)):
        load("binarized-mnist")


def test_without_matlab_files_mnist_is_binarised_with_a_stated_seed(small_mnist, tmp_path, monkeypatch):
    fill(tmp_path / "data" / "mnist", small_mnist)
    monkeypatch.setenv("ARGRAD_DATA", str(tmp_path / "data"))
    before = torch.get_rng_state()
    found, grey = load("binarized-mnist"), load("mnist")
    assert found.source == f"{grey.source}; binarised once with torch generator seed 0"
    assert found.top == 1 and found.train.unique().tolist() == [0, 1]
    assert torch.equal(found.valid, load("binarized-mnist").valid)
    assert torch.equal(torch.get_rng_state(), before)
    assert (found.test[grey.test == 0] == 0).all() and (found.test[grey.test == 255] == 1).all()
    share, mean = found.valid.double().mean().item(), grey.valid.double().mean().item() / 255
    n = found.valid.numel()
    assert abs(share - mean) < 4.9 * 0.5 / n**0.5  # alpha = 1e-6; a bit's deviation is at most a half
    assert torch.equal(found.labels[1], grey.labels[1])


# ---- the real ones -------------------------------------------------------------------------------


def test_digits():
    found = load("digits")
    assert [tuple(p.shape) for p in (found.train, found.valid, found.test)] == [
        *((1300, 64), (200, 64), (297, 64))
    ]
    assert (found.side, found.top) == (8, 16) and int(found.train.max()) == 16
    assert set(found.labels[2].tolist()) == set(range(10))
    assert torch.equal(found.train, load("digits").train)


def seconds_of(name: str) -> tuple[Images, float]:
    started = time.process_time()
    found = load(name)
    return found, time.process_time() - started


@pytest.mark.skipif(not (SHARED / "mnist").exists(), reason="needs ../shared/data/mnist")
def test_real_mnist(monkeypatch):
    monkeypatch.setenv("ARGRAD_DATA", str(SHARED))
    found, seconds = seconds_of("mnist")
    assert [len(p) for p in (found.train, found.valid, found.test)] == [50_000, 10_000, 10_000]
    assert found.labels[0][:5].tolist() == [5, 0, 4, 1, 9]
    assert abs(found.train.double().mean().item() - 33.4) < 0.2  # the mean of all 60 000 is 33.318
    assert seconds < 10  # of the processor; about half a second


@pytest.mark.skipif(not (SHARED / "binarized_mnist").exists(), reason="needs ../shared/data")
def test_real_binarized_mnist(monkeypatch):
    monkeypatch.setenv("ARGRAD_DATA", str(SHARED))
    found, seconds = seconds_of("binarized-mnist")
    assert [len(p) for p in (found.train, found.valid, found.test)] == [50_000, 10_000, 10_000]
    assert abs(found.train.double().mean().item() - 0.1306) < 1e-3
    assert seconds < 10


PLACES = (
    os.environ.get("ARGRAD_DATA", ""),
    SHARED,
    "/usr/share/datasets",
)  # the last: Debian's package
FASHION = next((p for p in map(Path, PLACES) if (p / "fashion-mnist").exists()), None)


@pytest.mark.skipif(FASHION is None, reason="needs Debian's dataset-fashion-mnist")
def test_real_fashion_mnist(monkeypatch):
    monkeypatch.setenv("ARGRAD_DATA", str(FASHION))
    found, seconds = seconds_of("fashion-mnist")
    assert [len(p) for p in (found.train, found.valid, found.test)] == [50_000, 10_000, 10_000]
    assert found.labels[0][:5].tolist() == [9, 0, 0, 3, 0] and seconds < 10
