"""Losses on scores: compare what scores prefer with what was observed."""
