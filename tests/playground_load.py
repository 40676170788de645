"""A load generator: `python playground_load.py ADDRESS SECONDS RATE STATES`; prints [sent, failed, late].

Each of eight threads sends its share at fixed times, each request on a connection of its own every other time, else
on one that stays open, as browsers do.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit

THREADS = 8


def worker(number: int, address: str, count: int, rate: float, states: dict, totals: list) -> None:
    place = urlsplit(address)
    kept = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
    tabs = list(states)
    start = time.monotonic() + number / rate
    failed, late = 0, 0.0
    for i in range(count):
        due = start + i * THREADS / rate
        time.sleep(max(due - time.monotonic(), 0))
        fresh = i % 2
        link = (
            http.client.HTTPConnection(str(place.hostname), place.port, timeout=30) if fresh else kept
        )
        tab = tabs[i % len(tabs)]
        try:
            if i % 5 == 0:
                link.request("GET", "/")
            else:
                body = json.dumps({**states[tab], "seed": i})
                link.request("POST", f"/api/{tab}", body, {"Content-Type": "application/json"})
            response = link.getresponse()
            failed += response.status != 200 or not response.read()
        except OSError:
            failed += 1
        if fresh:
            link.close()
        late = time.monotonic() - due
    totals.append((count, failed, late))


def main(address: str, seconds: str, rate: str, states: str) -> None:
    count = int(seconds) * int(rate) // THREADS
    totals: list[tuple[int, int, float]] = []
    options = (address, count, float(rate), json.loads(states), totals)
    threads = [threading.Thread(target=worker, args=(i, *options)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent, failed, late = zip(*totals, strict=True)
    sys.stdout.write(json.dumps([sum(sent), sum(failed), max(late)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
