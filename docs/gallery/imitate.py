"""Learn scores from finished solutions.

Somebody chooses four of ten items, by a rule that nobody tells; all we see is the items' features and
what was chosen. Perturbed Fenchel-Young loss needs nothing but the arg max of the structure, so the
same lines learn to imitate any solver.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag
from argrad.plot import COLORS

torch.manual_seed(0)
features = torch.randn(300, 10, 5)
rule = torch.tensor([1.0, -0.8, 0.5, 0.0, 0.0])
chosen = ag.Subset(4).argmax(features @ rule)  # (300, 10): what was observed
train, test = slice(0, 200), slice(200, 300)

model = torch.nn.Linear(5, 1, bias=False)
loss_of = ag.PerturbedFenchelYoung(ag.Subset(4), noise=ag.Normal(), num_samples=4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
agreement = []
for _ in range(80):
    loss = loss_of(model(features[train])[..., 0], chosen[train]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    guess = ag.Subset(4).argmax(model(features[test])[..., 0].detach())
    agreement.append((guess * chosen[test]).sum(-1).mean() / 4)

figure, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
ax.plot(agreement, color=COLORS[0], linewidth=2)
ax.axhline(0.4, color="#333333", linestyle=":", label="by chance")
ax.set(xlabel="step", ylabel="share of the four that agree", ylim=(0, 1.02))
ax.legend()
plt.show()
