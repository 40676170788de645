"""Checkpoints: everything that changes from step to step, in a file that cannot run code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from argrad._errors import InputError
from argrad.recipes.bench import ranks
from argrad.recipes.files import StorageError, explained, write_bytes


def save(path: Path, parts: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    """Keep the state of `parts`, of torch's own generator, and what else is to be said; of all ranks in one file."""
    data = _encoded(path, parts, said)
    if ranks.world() == 1:
        write_bytes(path, data)
        return
    states = ranks.gathered(data)
    if states:
        buffer = io.BytesIO()
        torch.save({"ranks": states}, buffer)
        write_bytes(path, buffer.getvalue())


def _encoded(path: Path, parts: Mapping[str, Any], said: Mapping[str, Any]) -> bytes:
    state = {
        **said,
        "torch": torch.get_rng_state(),
        "parts": {name: _state_of(part) for name, part in parts.items()},
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    if not path.exists():
        _check_readable(buffer, parts)
    return buffer.getvalue()


def restore(path: Path, parts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Put `parts` and torch's generator back and return what was said; None if there is no checkpoint."""
    if not path.exists():
        return None
    with explained(path, "read"):
        data = path.read_bytes()
    try:
        state = _load(data)
        if "ranks" in state:
            state = _load(state["ranks"][ranks.rank()].numpy().tobytes())
        held = set(state["parts"])
    except (
        Exception
    ):  # damaged files fail in many ways; torch's own text would suggest to trust the file
        raise _refuse(path, "it is damaged, or not a checkpoint of ours") from None
    if held != set(parts):
        raise _refuse(
            path, f"it holds {', '.join(sorted(held))}; the recipe has {', '.join(sorted(parts))}"
        )
    for name, part in parts.items():
        try:
            _restore_part(part, state["parts"][name])
        except Exception as error:  # a part says in its own way that a state does not fit
            reason = str(error).partition("\n")[0].rstrip(":. ")
            raise _refuse(path, f"its {name!r} does not fit the recipe ({reason})") from None
    torch.set_rng_state(state["torch"])
    return state


def _load(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if (
            name := archive.testzip()
        ) is not None:  # torch itself reads a damaged tensor without a word
            raise zipfile.BadZipFile(name)
    return torch.load(io.BytesIO(data), weights_only=True)  # never runs code from the file


def _refuse(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"cannot go on from {path}: {reason}. Delete the folder {path.parent} to train this cell anew, "
        "or give --fresh to train all of them anew."
    )


def _check_readable(buffer: io.BytesIO, parts: Mapping[str, Any]) -> None:
    """Whether it can be read back, said at the first checkpoint and not after the first kill."""
    try:
        _load(buffer.getvalue())
    except Exception:  # tensors, numbers, texts, and lists and dicts of them are what can be read
        raise InputError(
            f"the state of {', '.join(parts)} holds something that a checkpoint cannot keep. Let every `state_dict` "
            "be of tensors, numbers, texts, lists and dicts."
        ) from None


def _state_of(part: Any) -> Any:
    return part.get_state() if isinstance(part, torch.Generator) else part.state_dict()


def _restore_part(part: Any, state: Any) -> None:
    if isinstance(part, torch.Generator):
        part.set_state(state)
    else:
        part.load_state_dict(state)
