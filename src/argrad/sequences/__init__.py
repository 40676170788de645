"""Samples without replacement: weights and gradients from sets of distinct samples."""
