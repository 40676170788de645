"""Which three inputs matter?

Twenty inputs, three of which decide the answer. A random 3-subset masks the inputs in every step; its
scores are trained with the classifier, through the relaxed subset (`Subset(3)`, `hard=True`). The
inclusion probabilities find the three ([Subset](../structures/subset.md)).
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

torch.manual_seed(0)
x = torch.randn(2000, 20)
y = (x[:, 3] + x[:, 8] - x[:, 15] > 0).float()

scores = torch.nn.Parameter(torch.zeros(20))
classifier = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(
    [{"params": [scores], "lr": 0.05}, {"params": classifier.parameters(), "lr": 0.01}]
)
history = []
for _ in range(120):
    batch = torch.randint(2000, (128,))
    chosen = ag.Perturbed(ag.Subset(3), scores.expand(128, 20)).rsample(tau=0.5, hard=True)
    logit = classifier(x[batch] * chosen)[:, 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, y[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(ag.Subset(3).marginals(scores.detach()))

sorted(scores.topk(3).indices.tolist())  # -> [3, 8, 15]
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
picture = ax.imshow(torch.stack(history).T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set(xlabel="step", ylabel="input", yticks=[3, 8, 15])
figure.colorbar(picture, label="probability of being chosen")
plt.show()
