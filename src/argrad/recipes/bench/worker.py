"""`python -m argrad.recipes.bench.worker FOLDER`: do the job that is described there."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from argrad._errors import ArgradError
from argrad.recipes.bench.jobs import load, train
from argrad.recipes.bench.workers import REFUSED
from argrad.recipes.data.places import DataError
from argrad.recipes.files import StorageError


def main(folder: str) -> int:
    """Exit code 0: `result.json` is there; 130: interrupted and saved; otherwise a sentence is on stderr.

    `REFUSED` says that it would be the same for every cell.
    """
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        train(load(Path(folder)))
    except ArgradError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED if isinstance(error, (StorageError, DataError)) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def _end_with_the_parent() -> None:
    """Stdin is a pipe from the parent that ends when the parent does; checkpoints make ending here safe."""
    while os.read(0, 1024):
        pass
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
