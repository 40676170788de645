"""Sequences and sets: searches, samplers with and without replacement, weights and gradients from samples."""
