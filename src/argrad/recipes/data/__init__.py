"""Data sets of the recipes: found in a folder, or downloaded once and checked.

`images.load("mnist")` and its neighbours return tensors. `places.py` says where files are looked for, `fetch.py`
downloads, `idx.py` reads the format of MNIST.
"""

from argrad.recipes.data.images import Images, Name, load

__all__ = ["Images", "Name", "load"]
