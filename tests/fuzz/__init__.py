"""Hostile input for every public function; `python -m tests.fuzz --help`."""
