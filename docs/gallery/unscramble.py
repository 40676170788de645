"""Put the strip in order.

A gradient was cut into eight strips and shuffled. A permutation is trained so that neighbouring strips
fit: the relaxed matrix during training, the exact assignment at the end. There is no label, only "edges
should match", which holds for the order and for its mirror image.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

torch.manual_seed(0)
rows, columns = torch.linspace(0, 1, 24)[:, None], torch.linspace(0, 1, 64)
image = torch.sin(5 * columns + 2 * rows) + columns  # (24, 64)
strips = image.reshape(24, 8, 8).permute(1, 0, 2)  # eight strips, (8, 24, 8)
shuffled = strips[torch.randperm(8)]
left, right = shuffled[:, :, 0], shuffled[:, :, -1]  # their edges

scores = torch.nn.Parameter(0.1 * torch.randn(32, 8, 8))  # 32 tries at once
optimizer = torch.optim.Adam([scores], lr=0.2)
for step in range(120):
    tau = max(0.1, 1.0 - step / 100)
    P = ag.Perturbed(ag.Permutation(), scores, noise_scale=0.3).rsample(tau=tau)  # P @ x is x reordered
    misfit = ((P @ right)[:, :-1] - (P @ left)[:, 1:]).square().sum((-2, -1))
    optimizer.zero_grad()
    misfit.sum().backward()
    optimizer.step()
hard = ag.Permutation().argmax(scores.detach())
final = ((hard @ right)[:, :-1] - (hard @ left)[:, 1:]).square().sum((-2, -1))
best = hard[final.argmin()].argmax(-1)

figure, axes = plt.subplots(1, 3, figsize=(9, 1.7), layout="constrained")
shown = {"shuffled": shuffled, "put in order": shuffled[best], "the original": strips}
for ax, (title, parts) in zip(axes, shown.items(), strict=True):
    ax.imshow(parts.permute(1, 0, 2).reshape(24, 64), cmap="cividis", aspect="auto")
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
