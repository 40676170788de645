"""Structures: one set Z a file, all answering the questions of `Structure`."""
