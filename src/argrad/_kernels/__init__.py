"""Compiled CPU kernels (numba), imported only when first needed.

`bits.py` turns counters into random numbers, `fill.py` fills arrays with them, `choose.py` fuses noise
with softmax, arg max and top-k, `threads.py` shares the rows of one call out between threads. Everything
here has a plain torch twin that other devices, `torch.compile` and `torch.func` use; the tests hold the
two together.
"""
