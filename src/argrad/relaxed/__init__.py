r"""Distributions behind Gumbel-softmax: the Concrete densities, and the hard sample with relaxed gradient.

A relaxed sample at $\tau = 0.05$ has coordinates like $e^{-400}$, which float32 cannot hold; so samples
are drawn, and densities computed, in logarithms (`rsample_log`, `log_prob_log`). `log_prob(rsample())`
is exact all the same: a distribution remembers the logarithm of the last sample it returned.
"""
