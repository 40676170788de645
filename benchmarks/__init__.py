"""Benchmarks: ours beside a peer, interleaved in one run. `make bench`, or `python -m benchmarks --help`."""
