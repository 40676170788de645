"""`python bench_trials.py OUT`: run the toy recipe again and again, each time hit at another file operation.

Each trial is a forked process, so that torch is loaded once. An audit hook counts the operations that change files
under OUT; at the chosen one the process is killed (`kill`), or the disk is full (`full`). The same command then runs
undisturbed. One line of JSON a trial goes to stdout; `test_bench_resume.py` judges it.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from argrad._errors import ArgradError
from argrad.recipes import find
from argrad.recipes.bench.options import changed
from argrad.recipes.bench.reproduce import reproduce

RECIPE = find(str(Path(__file__).with_name("toy_recipe.py")))
CONFIG = changed(RECIPE.config, {"steps": 3, "rows": ("wide",), "columns": ("SGD",)})
DONE, REFUSED, CRASHED = 0, 2, 1
CHANGES = ("os.rename", "os.mkdir", "os.truncate")


def hit(out: Path, mode: str, at: int) -> None:
    """Kill this process, or refuse, at the change number `at` of a file under `out`."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        writes = event == "open" and isinstance(args[1], str) and args[1][:1] in ("w", "a")
        if (writes or event in CHANGES) and str(args[0]).startswith(str(out)):
            count += 1
            if count == at and mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif count == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sys.addaudithook(hook)


def run(out: Path, mode: str = "", at: int = 0) -> tuple[int, str]:
    """Run the recipe in a forked process; its exit code, negative for a signal, and its error."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text
    code = CRASHED
    try:
        if mode:
            hit(out, mode, at)
        reproduce(RECIPE, CONFIG, out=out, workers=1, quiet=True)
        code = DONE
    except ArgradError as error:
        code = REFUSED
        os.write(writer, str(error).encode())
    except BaseException:
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(code)


def found(out: Path) -> dict[str, Any]:
    """What is in the folder: numbers, log, leftovers, files that are not whole."""
    logs = [p.read_text().splitlines(keepends=True) for p in sorted(out.rglob("log.jsonl"))]
    whole = [line for log in logs for line in log if line.endswith("}\n")]
    lines = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in whole]
    results = [json.loads(p.read_text()) for p in sorted(out.rglob("result*.json"))]
    for path in out.rglob("*.pt"):
        torch.load(path, weights_only=True)
    return {
        "metrics": [r.get("metrics") or [c["metrics"] for c in r["cells"]] for r in results],
        "log": lines,
        "cut": sum(len(log) for log in logs) - len(whole),
        "parts": len(list(out.rglob("*.part"))),
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    reproduce(
        RECIPE, CONFIG, out=out / "warm", workers=1, quiet=True
    )  # imports what the trials then share
    run(out / "whole")
    print(json.dumps({"mode": "none", "after": found(out / "whole")}))
    for mode in ("kill", "full"):
        for at in range(1, 1000):
            place = out / f"{mode}{at}"
            code, text = run(place, mode, at)
            before = found(place)
            again = run(place)
            trial = {"mode": mode, "at": at, "code": code, "text": text, "before": before}
            print(json.dumps(trial | {"again": again, "after": found(place)}))
            if code == DONE:  # there were fewer changes than that
                break


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
