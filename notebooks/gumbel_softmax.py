# %% [markdown]
# # Gumbel-softmax in ten minutes
#
# A network must pick *one* of several options, at random, and learn from what happens afterwards.
# This notebook goes from the problem to a trained model: digits, squeezed through eight discrete
# choices.
#
# You need `pip install "argrad[plot]" scikit-learn`. It runs on a laptop's CPU in seconds.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import argrad as ag

torch.manual_seed(0)
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)

# %% [markdown]
# ## 1. The problem
#
# Scores become probabilities by the softmax; drawing from them is easy. But an index has no gradient.

# %%
scores = torch.tensor([1.0, 0.5, -1.0], requires_grad=True)
drawn = torch.multinomial(scores.softmax(-1), 1, generator=g)
drawn, drawn.requires_grad

# %% [markdown]
# ## 2. The trick
#
# Add Gumbel noise to the scores and take the arg max: that is *exactly* a draw from the softmax. All
# randomness is now in noise that does not depend on the scores. Then replace the arg max by a softmax
# with a temperature. The result is nearly one-hot, and it has a gradient.

# %%
many = scores.detach().expand(100_000, 3)
share = ag.gumbel_max(many, generator=g).bincount() / 100_000
print("drawn  ", [round(x, 3) for x in share.tolist()])
print("softmax", [round(x, 3) for x in scores.softmax(-1).tolist()])

y = ag.gumbel_softmax(scores, tau=0.5, generator=g)
y

# %% [markdown]
# ## 3. The temperature
#
# The same noise at four temperatures. Hot: everything is a mixture. Cold: nearly one-hot. The winner
# (colour) never changes.

# %%
figure, axes = plt.subplots(1, 4, figsize=(10, 2.7), layout="constrained")
for ax, tau in zip(axes, (3.0, 1.0, 0.4, 0.1), strict=True):
    ag.plot.simplex(scores.detach(), tau, generator=ag.CounterRNG(0), ax=ax)
plt.show()

# %% [markdown]
# ## 4. Hard choices with a gradient
#
# `hard=True` returns the one-hot vector itself, and lets the gradient of the soft one through
# (straight-through).

# %%
z = ag.gumbel_softmax(scores, tau=0.5, hard=True, generator=g)
(z * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
z.detach(), scores.grad

# %% [markdown]
# ## 5. Train something
#
# An autoencoder for 8 × 8 digits. Between encoder and decoder stand eight choices among sixteen: 32
# bits for an image. The temperature falls while it trains; the layer keeps the schedule.

# %%
pixels, labels = load_digits(return_X_y=True)
x = torch.tensor(pixels, dtype=torch.float32) / 16


class Codes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128)
        )
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)
        )
        schedule = ag.schedules.Linear(start=2.0, end=0.5, steps=300)
        self.choose = ag.nn.GumbelSoftmax(schedule, hard=True)

    def forward(self, x):
        logits = self.encoder(x).view(-1, 8, 16)  # eight choices among sixteen
        return self.decoder(self.choose(logits).flatten(1))


model = Codes()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
course = []
for _ in range(400):
    batch = x[torch.randint(len(x), (128,))]
    loss = (model(batch) - batch).square().sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.choose.step()
    course.append(loss.item())
print(f"squared error of an image: {course[0]:.1f} at first, {sum(course[-20:]) / 20:.1f} at the end")

# %%
model.eval()
with torch.no_grad():
    again = model(x[:8])
figure, axes = plt.subplots(2, 8, figsize=(9, 2.4), layout="constrained")
for i in range(8):
    for row, image in enumerate((x[i], again[i])):
        axes[row, i].imshow(image.view(8, 8).numpy(), cmap="Greys", vmin=0, vmax=1)
        axes[row, i].axis("off")
plt.show()

# %% [markdown]
# Above the digits, below what the decoder makes of eight choices each.
#
# ## 6. What else there is
#
# Forbid options with `mask=`, fix the luck with `generator=`, choose sets, orders and trees instead
# of one item.

# %%
allowed = torch.tensor([True, False, True])
masked = ag.gumbel_softmax(scores.detach(), mask=allowed, generator=g)
three_of_ten = ag.Perturbed(ag.Subset(3), torch.zeros(10)).rsample(tau=0.5, hard=True, generator=g)
masked, three_of_ten

# %% [markdown]
# Next: *Which estimator for my model?* and *Latent trees*, the two notebooks beside this one; the
# ten-minute tour and the gallery in the documentation.
