"""Algorithms: tensors in, tensors out, one a file. Forbidden items are scores of `-inf`."""
