"""Probabilities that mean what they say.

A classifier that says "97 %" and is right three times in four. One number, the temperature, repairs it;
a safeguarded Newton method finds it in milliseconds. It is the same classifier before and after: its
decisions do not change, only what it says of them ([Calibration](../softmax/calibration.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

g = torch.Generator().manual_seed(0)
truth = 1.5 * torch.randn(4000, 5, generator=g)  # the right logits
labels = ag.gumbel_max(truth, generator=g)  # (4000)
logits = 3.0 * truth  # a network that is three times too sure

fit = ag.calibration.fit_temperature(logits[:2000], labels[:2000])
2.8 < float(fit.temperature) < 3.2  # -> True

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
ag.plot.reliability(logits[2000:], labels[2000:], title="as trained", ax=axes[0])
repaired = logits[2000:] / fit.temperature
ag.plot.reliability(
    repaired, labels[2000:], title=f"divided by {float(fit.temperature):.2f}", ax=axes[1]
)
plt.show()
