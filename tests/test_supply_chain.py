"""Nothing that is read can run code, files are whole or absent, and what is downloaded is checked."""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from argrad.recipes.data import fetch
from argrad.recipes.data.places import DataError

SOURCE = Path(__file__).parents[1] / "src" / "argrad"
FILES = sorted(SOURCE.rglob("*.py"))
NEVER = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_is_unpickled(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & NEVER
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in NEVER
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called == "torch.load":
            assert given.get("weights_only") == "True", f"line {node.lineno}"
        if called in ("np.load", "numpy.load"):
            assert given.get("allow_pickle", "False") == "False", f"line {node.lineno}"
        assert not called.endswith((".extractall", "gather_object", "broadcast_object_list")), (
            f"line {node.lineno}"
        )
        assert called not in ("eval", "exec"), f"line {node.lineno}"
        if called == "yaml.load":
            raise AssertionError(f"line {node.lineno}: yaml.safe_load")


def test_archives_are_read_and_never_unpacked() -> None:
    """A member is opened by name and read into memory, so that no name in an archive can become a path."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    assert not re.search(r"\.extract(all)?\(", text)
    assert "shutil.unpack_archive" not in text


def test_a_download_gets_its_name_only_when_its_hash_is_right(tmp_path: Path, monkeypatch) -> None:
    good = hashlib.sha256(b"good").hexdigest()
    bodies = iter([b"evil", b"goo", b"good"])
    monkeypatch.setenv("ARGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "_download", lambda url, part: part.write_bytes(next(bodies)))

    def read(path: Path) -> bytes:
        assert path.name != "data.bin" or path.read_bytes() == b"good", "a wrong file got its name"
        if hashlib.sha256(path.read_bytes()).hexdigest() != good:
            raise DataError("another hash")
        return path.read_bytes()

    with pytest.raises(DataError, match="another hash"):
        fetch.fetch("some", ["https://a"], "data.bin", read)
    assert not list(tmp_path.rglob("*.bin")) and not list(tmp_path.rglob("*.part"))
    assert fetch.fetch("some", ["https://a", "https://b"], "data.bin", read) == b"good"
    assert [path.read_bytes() for path in tmp_path.rglob("*.bin")] == [b"good"]


def test_every_requirement_is_pinned() -> None:
    root = SOURCE.parents[1]
    lines = [
        line for line in (root / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line) for line in lines)


def test_the_oldest_versions_that_are_tested_are_those_allowed() -> None:
    root = SOURCE.parents[1]
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (root / "constraints-lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if line and line[0] != "#")
    allowed = dict(line.split(">=") for line in wanted)
    assert set(tested) == set(allowed)
    assert all(tested[name].startswith(f"{version}.") for name, version in allowed.items())
