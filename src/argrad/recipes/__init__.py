"""Recipes: experiments that a person can read top to bottom and run with one command."""
