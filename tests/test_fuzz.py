"""Hostile input: a right answer or a sentence, for every public function; never NaN, a crash or a hang.

`python -m tests.fuzz --calls 1000000 --seed 0` is the long form; what it found is in the issue's note.
"""

from __future__ import annotations

import types
from random import Random
from zlib import crc32

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import argrad as ag
from fuzz import runner
from fuzz.inputs import Draw
from fuzz.judge import GOOD, Verdict, compare, first_nan, judge
from fuzz.targets import EXEMPT, RARE, TARGETS, TORCH_SPEAKS


def public_names() -> set[str]:
    """`gumbel_softmax`, `calibration.ece`, ...: everything that can be called."""
    found = set()
    for name in ag.__all__:
        value = getattr(ag, name)
        if not isinstance(value, types.ModuleType):
            found.add(name)
            continue
        inner = getattr(value, "__all__", None) or [
            key for key, x in vars(value).items() if getattr(x, "__module__", "") == value.__name__
        ]
        found |= {f"{name}.{key}" for key in inner if callable(getattr(value, key)) and key[0] != "_"}
    return found


def test_every_public_name_is_called() -> None:
    """A new function is on the list, or has a reason not to be."""
    exempt = {word for words in EXEMPT for word in words.split()}
    called = {
        part for name in TARGETS for part in (name, ".".join(name.split(".")[:2]), name.split(".")[0])
    }
    last = {name.rpartition(".")[2] for name in TARGETS} | called
    missing = {
        name
        for name in public_names()
        if name not in called
        and not {name, name.split(".")[0], name.rpartition(".")[2]} & exempt
        and not ("." in name and name.rpartition(".")[2] in last)
        and not name.startswith("schedules.Schedule")
    }
    assert not missing, f"no target calls {sorted(missing)}"


def verdict(name: str, source: Random, twin: str) -> None:
    also = (ValueError,) if name in TORCH_SPEAKS else ()
    found = judge(TARGETS[name], source, twin=twin, also=also)
    assert found.verdict in GOOD, f"{found.verdict}: {found.text}"


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in RARE])
def test_answer_or_sentence(name: str) -> None:
    """Dtypes, shapes, strides, masks, temperatures, values, and no device at all; hypothesis shrinks what fails."""

    @settings(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False), st.sampled_from(["", "layout"]))
    def holds(source: Random, twin: str) -> None:
        verdict(name, source, twin)

    holds()
    if crc32(name.encode()) % 4 == 0:  # slow; all of them in the test at length
        verdict(name, Random(name), "meta")


@pytest.mark.slow
@pytest.mark.parametrize("twin", ["layout", "meta"])
@pytest.mark.parametrize("name", TARGETS)
def test_answer_or_sentence_at_length(name: str, twin: str) -> None:
    for number in range(40 if name not in RARE else 4):
        verdict(name, Random(f"{name}/{number}"), twin)


# ---- the judge and the processes themselves -----------------------------------------------------------


def test_the_judge_sees_what_it_must() -> None:
    assert first_nan({"a": [torch.zeros(2), float("nan")]}) == "result['a'].1"
    assert first_nan(torch.zeros(0)) == ""
    assert compare(torch.zeros(2), torch.zeros(2), values=True) == ""
    assert "float64" in compare(torch.zeros(2), torch.zeros(2).double(), values=False)
    assert compare(torch.tensor([1.0]), torch.tensor([-torch.inf]), values=True)
    assert judge(lambda d: torch.sqrt(-torch.ones(1)), Random(0)).verdict is Verdict.NAN


def test_other_strides_hold_the_same_numbers() -> None:
    for seed in range(200):
        odd, plain = (Draw(Random(seed), plain=p).scores((2, 3, 4)) for p in (False, True))
        assert torch.equal(odd.nan_to_num(5.0), plain.nan_to_num(5.0)), seed
        assert plain.is_contiguous()


def test_hangs_and_crashes_are_found_and_can_be_repeated() -> None:
    said: list[str] = []
    result = runner.fuzz(7, 3, timeout=3.0, traps=True, say=said.append)
    found = {f["target"]: f["verdict"] for f in result["failures"]}
    assert found == {
        "layout": Verdict.OTHER,
        "hang": "hang",
        "crash": "crash",
        "nan": Verdict.NAN,
        "gradient": Verdict.NAN,
        "error": Verdict.ERROR,
    }
    assert sum(result["verdicts"].values()) >= 6  # what a dying process had not yet counted is lost
    assert any("python -m tests.fuzz --seed 3 --first 2 --calls 1" in text for text in said)
