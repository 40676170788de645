"""The playground without a browser: the same numbers in JavaScript and Python, and a server that keeps its temper."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

import argrad as ag
import playground
from argrad._errors import InputError
from argrad.cli import main
from argrad.play import answers, page
from argrad.play.server import LARGEST_REQUEST, MOST_CONNECTIONS, Playground
from html_page import Page
from playground import BEAM, ESTIMATORS, RACE, SIMPLEX, STATES, SUBSET, square

needs_node = pytest.mark.skipif(
    playground.NODE is None, reason="no node: the page's JavaScript cannot run"
)

COMPUTED = [
    ("simplex", SIMPLEX),
    ("simplex", {**SIMPLEX, "logits": [-4, 0, 4], "tau": 0.05, "seed": 2**31 - 1}),
    ("simplex", {**SIMPLEX, "tau": 10, "draws": 500}),
    ("race", RACE),
    ("race", {**RACE, "rounds": 1000, "seed": 7, "logits": [4, -4, 0, 0, 1]}),
    *(("structures", {**SUBSET, "k": k, "tau": tau}) for k, tau in ((1, 0.05), (3, 10), (6, 0.3))),
    ("structures", {**SUBSET, "noise": False}),
    *(
        ("structures", square("permutation", 4, i, tau=t))
        for i, t in enumerate((0.05, 0.1, 0.3, 1, 10))
    ),
    *(("structures", square("permutation", 5, i, tau=0.05 + 0.02 * i)) for i in range(10)),
    *(("structures", square("tree", 5, i, tau=t)) for i, t in enumerate((0.05, 0.5, 10))),
    *(("structures", square("arborescence", 5, i, tau=t)) for i, t in enumerate((0.05, 0.5, 10))),
    ("structures", square("tree", 4, 9, noise=False)),
    *(("beam", {**BEAM, "k": k, "seed": 11 * k}) for k in range(1, 7)),
    ("beam", {**BEAM, "table": [[5, -5, -5], [0, 0, 0], [-5, 5, 5]], "k": 4}),
]


# ---- the same numbers ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_javascript() -> list[tuple[dict[str, Any], str]]:
    """Numbers and program of every case, in one run of node."""
    pairs = ", ".join(f"['{tab}', {json.dumps(state)}]" for tab, state in COMPUTED)
    return playground.in_node(f"[{pairs}].map(([tab, s]) => [NUMBERS[tab](s), PYTHON[tab](s)])")


@needs_node
@pytest.mark.parametrize("case", range(len(COMPUTED)), ids=lambda i: f"{COMPUTED[i][0]}-{i}")
def test_the_browser_computes_what_the_library_computes(case: int, by_javascript) -> None:
    tab, state = COMPUTED[case]
    numbers, program = by_javascript[case]
    playground.assert_same_numbers(answers.TABS[tab](state), numbers)
    playground.assert_same_numbers(numbers, playground.run_program(program))  # "copy as Python"


@needs_node
def test_the_noise_is_the_librarys() -> None:
    for seed in (0, 1, 12345, 2**31 - 1):
        ours = ag.CounterRNG(seed).gumbel(5, 7, dtype=torch.float64)
        theirs = playground.in_node(f"gumbels({seed}, 5, 7)")
        np.testing.assert_allclose(
            theirs, ours.numpy(), rtol=1e-14
        )  # logarithms differ in the last digit


@needs_node
@pytest.mark.parametrize("law", answers.LAWS)
def test_the_estimators_program_measures_what_the_server_measures(law: str) -> None:
    state = {
        **ESTIMATORS,
        "structure": law,
        "cost": {"bits": "product", "subset": "quadratic"}.get(law, "tanh"),
    }
    rows = answers.estimators(state)["rows"]
    report = playground.run_program(playground.in_node(f"PYTHON.estimators({json.dumps(state)})"))[
        "report"
    ]
    assert [row["name"] for row in rows] == [row.name for row in report.rows]
    np.testing.assert_allclose([r["mse"] for r in rows], [r.mse for r in report.rows])


@needs_node
def test_structures_are_listed_completely() -> None:
    sizes = playground.in_node(
        "[['subset', 7, 3], ['permutation', 4], ['tree', 5], ['arborescence', 5]].map(x => objects(...x).length)"
    )
    kinds = (
        (ag.Subset(3), (7,)),
        (ag.Permutation(), (4, 4)),
        (ag.SpanningTree(), (5, 5)),
        (ag.Arborescence(), (5, 5)),
    )
    assert sizes == [structure.count(shape) for structure, shape in kinds]


# ---- the page ------------------------------------------------------------------------------------


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = page.build()
    outside = [a for a in Page(text).addresses if not a.startswith("data:")]
    assert outside == []
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
    assert len(text) < 120_000


def test_every_file_of_the_page_is_in_it() -> None:
    folder = Path(page.__file__).parent / "page"
    assert {p.name for p in folder.glob("*.js")} == set(page.SCRIPTS)
    assert "/* script */" not in page.build() and "/* style */" not in page.build()


def test_measured_answers_cannot_end_the_script() -> None:
    text = page.build(measured=[{"state": {"structure": "</script>"}, "numbers": {}}])
    assert text.count("</script>") == 1


def test_play_writes_the_page(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(answers, "presets", lambda: [ESTIMATORS])  # the real ones take seconds
    out = tmp_path / "play.html"
    assert main(["play", "--write", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    text = out.read_text(encoding="utf-8")
    assert '"served": false' in text and '"StraightThrough"' in text


def test_presets_are_answerable() -> None:
    for state in answers.presets():
        rows = answers.estimators({**state, "replicates": 10})["rows"]
        assert [row["name"] for row in rows] == list(answers.ESTIMATORS)


# ---- the server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Playground]:
    with playground.serving() as made:
        yield made


def request(
    server: Playground, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, bytes]:
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
    if body is not None:
        headers.setdefault("Content_Type", "application/json")
    with contextlib.closing(connection):
        connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        return response.status, response.read()


def post(server: Playground, tab: str, state: object, **headers: str) -> tuple[int, Any]:
    status, body = request(server, "POST", f"/api/{tab}", json.dumps(state), **headers)
    return status, json.loads(body)


@pytest.mark.parametrize("tab", STATES)
def test_every_tab_has_an_answer(tab: str, server: Playground) -> None:
    status, numbers = post(server, tab, STATES[tab])
    assert status == 200
    if tab != "estimators":  # its times differ
        assert numbers == answers.TABS[tab](STATES[tab])


def test_the_page_is_served(server: Playground) -> None:
    status, body = request(server, "GET", "/")
    assert status == 200 and body == page.build().encode()
    assert request(server, "GET", "/?from=test")[0] == 200
    assert request(server, "HEAD", "/") == (200, b"")


WRONG = [
    ("simplex", {**SIMPLEX, "tau": 0}, "must be a number from 0.01 to 100; got 0"),
    ("simplex", {**SIMPLEX, "tau": float("nan")}, "got nan"),
    ("simplex", {**SIMPLEX, "tau": float("inf")}, "got inf"),
    ("simplex", {**SIMPLEX, "tau": True}, "got True"),
    ("simplex", {**SIMPLEX, "draws": 10**9}, "must be a whole number from 1 to 1000"),
    ("simplex", {**SIMPLEX, "draws": 10**400}, "must be a whole number from 1 to 1000"),
    ("simplex", {**SIMPLEX, "seed": 1.5}, "must be a whole number"),
    ("simplex", {**SIMPLEX, "seed": "1"}, "must be a whole number"),
    ("simplex", {**SIMPLEX, "logits": [1, 2]}, "must be a list of 3 numbers"),
    ("simplex", {**SIMPLEX, "logits": [1, 2, None]}, "must be a list of 3 numbers"),
    ("simplex", {**SIMPLEX, "logits": {"a": 1}}, "must be a list of 3 numbers"),
    ("simplex", {"tau": 1}, "it is missing"),
    ("simplex", {**SIMPLEX, "code": "import os"}, "got also 'code'"),
    ("race", {**RACE, "rounds": 0}, "must be a whole number from 1 to 2000"),
    ("race", {**RACE, "logits": [0.0] * 100}, "must be a list of 2 to 10 numbers"),
    ("structures", {**SUBSET, "structure": "../etc/passwd"}, "must be one of subset, permutation"),
    ("structures", {**SUBSET, "k": 8}, "must be a whole number from 1 to 7"),
    ("structures", {**SUBSET, "structure": "tree"}, "must be a square matrix, 2 to 6 rows"),
    (
        "structures",
        {**SUBSET, "structure": "tree", "scores": [[0.0] * 50] * 50},
        "must be a square matrix",
    ),
    ("structures", {**SUBSET, "noise": 1}, "must be true or false"),
    ("beam", {**BEAM, "k": 9}, "must be a whole number from 1 to 8"),
    ("beam", {**BEAM, "table": [[1e9] * 3] * 3}, "from -50 to 50"),
    ("estimators", {**ESTIMATORS, "replicates": 10**6}, "must be a whole number from 10 to 2000"),
    ("estimators", {**ESTIMATORS, "n": 60}, "must be a whole number from 2 to 6"),
    ("estimators", {**ESTIMATORS, "structure": "spanningtree", "n": 6}, "from 2 to 4"),
    ("estimators", {**ESTIMATORS, "estimators": []}, "must be a list of different names"),
    (
        "estimators",
        {**ESTIMATORS, "estimators": ["Reinforce"] * 2},
        "must be a list of different names",
    ),
    ("estimators", {**ESTIMATORS, "estimators": ["__import__"]}, "must be a list of different names"),
    ("estimators", {**ESTIMATORS, "cost": "eval"}, "must be one of linear"),
]


@pytest.mark.parametrize(("tab", "state", "says"), WRONG)
def test_a_wrong_state_gets_a_sentence(tab: str, state: dict, says: str, server: Playground) -> None:
    status, answer = post(server, tab, state)
    assert status == 400
    assert says in answer["error"] and len(answer["error"]) < 400


@pytest.mark.parametrize("body", ["", "{", "nonsense", "[1]", "3", "null", "[" * 30_000, '"x"', "\x00"])
def test_what_is_not_a_state_gets_a_sentence(body: str, server: Playground) -> None:
    status, answer = request(server, "POST", "/api/simplex", body)
    assert status == 400
    assert json.loads(answer)["error"].endswith(".")


def test_requests_that_are_not_json_are_refused(server: Playground) -> None:
    status, answer = post(
        server, "simplex", SIMPLEX, Content_Type="text/plain"
    )  # what a form could send
    assert status == 415 and "JSON" in answer["error"]
    assert request(server, "POST", "/api/simplex", b"\xff\xfe{")[0] == 400


@pytest.mark.parametrize("size", [LARGEST_REQUEST + 1, 3 * 2**20])
def test_a_huge_request_is_refused(size: int, server: Playground) -> None:
    status, answer = request(server, "POST", "/api/simplex", b" " * size)
    assert status == 413 and b"may have 65536 bytes" in answer


def test_an_announced_huge_request_is_refused_unread(server: Playground) -> None:
    answer = raw(
        server,
        b"POST /api/simplex HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99999999999999999999\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [b"", b"Content-Length: -1\r\n", b"Content-Length: x\r\n"])
def test_a_request_says_how_long_it_is(length: bytes, server: Playground) -> None:
    head = b"POST /api/simplex HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    assert raw(server, head + length + b"\r\n").startswith(b"HTTP/1.1 411")


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/page/style.css",
        "/api",
        "/api/simplex",
    ],
)
def test_there_is_one_page_and_nothing_else(path: str, server: Playground) -> None:
    status, answer = request(server, "GET", path)
    assert status == 404 and b"one page here" in answer


@pytest.mark.parametrize(
    "path", ["/", "/api/", "/api/answers", "/api/../simplex", "/simplex", "/api/simplex/"]
)
def test_there_are_no_other_addresses(path: str, server: Playground) -> None:
    status, answer = request(server, "POST", path, "{}")
    assert status == 404 and b"Ask /api/ for one of" in answer


def test_other_methods_are_refused(server: Playground) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "BREW"):
        status, answer = request(server, method, "/")
        assert status == 501 and b"GET / or POST" in answer


def test_a_name_that_is_not_ours_is_refused(server: Playground) -> None:
    status, answer = request(server, "GET", "/", Host="evil.example")
    assert status == 403 and b"answers to 127.0.0.1, localhost" in answer
    assert request(server, "GET", "/", Host="localhost:1")[0] == 200
    assert request(server, "GET", "/", Host="[")[0] == 403


def raw(server: Playground, data: bytes) -> bytes:
    with socket.create_connection(server.server_address[:2], timeout=20) as connection:
        connection.sendall(data)
        return connection.recv(65536)


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\r\n\r\n", b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET\r\n\r\n"],
)
def test_nonsense_does_not_stop_the_server(data: bytes, server: Playground) -> None:
    assert raw(server, data)[9:10] in (b"4", b"") or b"error" in raw(server, data)
    assert request(server, "GET", "/")[0] == 200


def test_too_many_connections_are_turned_away(server: Playground) -> None:
    opened = [socket.create_connection(server.server_address[:2]) for _ in range(MOST_CONNECTIONS + 20)]
    try:
        opened[-1].settimeout(20)
        assert opened[-1].recv(100).startswith(b"HTTP/1.1 503")
    finally:
        for connection in opened:
            connection.close()
    deadline = time.monotonic() + 20
    while True:
        try:
            assert request(server, "GET", "/")[0] == 200
            return
        except (AssertionError, OSError):  # until the threads have noticed
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_only_this_machine_can_reach_it(server: Playground) -> None:
    assert server.is_local and server.address.startswith("http://127.0.0.1:")
    with Playground("0.0.0.0", 0) as everybody:
        assert not everybody.is_local


def test_a_port_in_use_gets_a_sentence(server: Playground) -> None:
    with pytest.raises(InputError, match="--port 0"):
        Playground(port=server.server_address[1])
    with pytest.raises(InputError, match="cannot listen on no-such-host"):
        Playground("no-such-host.invalid", 0)


def test_one_measurement_at_a_time(server: Playground, monkeypatch) -> None:
    monkeypatch.setattr("argrad.play.server._WAIT_FOR_TURN", 0.05)
    with server.turn:
        status, answer = post(server, "estimators", ESTIMATORS)
    assert status == 503 and "try again" in answer["error"]
    assert post(server, "estimators", ESTIMATORS)[0] == 200


def test_a_failure_of_our_own_is_said_to_be_one(server: Playground, monkeypatch) -> None:
    monkeypatch.setitem(answers.TABS, "race", lambda state: {"share": float("nan")})
    status, answer = post(server, "race", RACE)
    assert status == 500 and "please report" in answer["error"]


@pytest.mark.parametrize("level", [-50.0, 50.0])
def test_extreme_states_have_numbers(level: float, server: Playground) -> None:
    table = [[level, -level, 0.0], [0.0, level, -level], [-level, -level, level]]
    for k in (1, 8):
        assert post(server, "beam", {**BEAM, "table": table, "k": k})[0] == 200
    assert post(server, "simplex", {**SIMPLEX, "logits": table[0], "tau": 0.01})[0] == 200
    assert post(server, "race", {**RACE, "logits": table[0]})[0] == 200
    for kind in ("permutation", "tree", "arborescence"):
        state = {**SUBSET, "structure": kind, "scores": table, "tau": 0.02}
        assert post(server, "structures", state)[0] == 200


def test_play_says_where_it_is_and_stops_when_asked() -> None:
    command = [sys.executable, "-m", "argrad", "play", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:(\d+)/ \(this machine only\)", line)
        assert address, line
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=60)
        ) as browser:
            browser.request(
                "POST", "/api/simplex", json.dumps(SIMPLEX), {"Content-Type": "application/json"}
            )
            assert browser.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "has stopped" in out and err == ""


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_wrong_port_gets_a_sentence(port: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["play", "--port", port])
    assert "must be" in capsys.readouterr().err


# ---- load ----------------------------------------------------------------------------------------


def memory() -> int:
    """Resident bytes of this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


@pytest.mark.slow
def test_two_hundred_requests_a_second() -> None:
    """Thirty seconds, from a process of its own: no error, and no growth after the first seconds."""
    with playground.serving() as server:
        for tab, state in STATES.items():
            assert post(server, tab, state)[0] == 200  # kernels are compiled on first use
        load(server, 5)
        before = memory()
        sent, failed, late = load(server, 30)
        grown = memory() - before
    assert failed == 0
    assert sent >= 200 * 30
    assert grown < 16 * 2**20, f"{grown / 2**20:.1f} MiB more after {sent} requests"
    assert late < 1.0, f"the last request was {late:.2f} s behind its time"
    assert threading.active_count() < 2 * MOST_CONNECTIONS


def load(server: Playground, seconds: int) -> tuple[int, int, float]:
    """Requests sent, failed, and how late the last one was."""
    generator = Path(__file__).with_name("playground_load.py")
    states = {tab: state for tab, state in STATES.items() if tab != "estimators"}
    done = subprocess.run(
        [sys.executable, str(generator), server.address, str(seconds), "200", json.dumps(states)],
        capture_output=True, text=True, timeout=seconds + 600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sent, failed, late = json.loads(done.stdout)
    return sent, failed, late
