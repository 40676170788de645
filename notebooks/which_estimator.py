# %% [markdown]
# # Which estimator for my model?
#
# There are more than twenty ways to get a gradient through a discrete choice. Which is best depends
# on the cost, the budget and what you may assume. This notebook measures it for one model, and then
# checks by training that the measurement told the truth.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import argrad as ag

torch.manual_seed(0)
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)

# %% [markdown]
# ## 1. A small instance of your model
#
# Take the real decoder and the real loss, but few latent variables, so that the exact gradient can be
# computed by listing all choices. Here: an image, three choices among six (216 settings), a decoder.

# %%
pixels, _ = load_digits(return_X_y=True)
x = torch.tensor(pixels, dtype=torch.float32) / 16
encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 18))
decoder = torch.nn.Sequential(torch.nn.Linear(18, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))


def cost_for(images):
    """A cost of samples `(S, ..., 3, 6)`: the squared error of the decoded image."""
    return lambda z: (decoder(z.flatten(-2)) - images).square().sum(-1)


image = x[0]
scores = encoder(image).view(3, 6).detach()
q = ag.Gibbs(ag.OneHot(), 3 * scores).independent(1)  # three variables share one cost
q

# %% [markdown]
# ## 2. Measure
#
# One call: every estimator many times, against the exact gradient. (`print(report)` shows all of it.)

# %%
candidates = [
    ag.Reinforce(4),
    ag.LeaveOneOut(4),
    ag.UnorderedSet(4),
    ag.LocalExpectation(),
    ag.MuProp(),
    ag.Rebar(),
    ag.StraightThrough(),
    ag.ReinMax(),
    ag.GumbelST(0.5),
    ag.Relaxed(0.5),
]
report = ag.diagnose(cost_for(image), q, candidates, replicates=3000, generator=g)
for row in report.rows:
    bias = f"bias {row.relative_bias:.2f}" if row.verdict == "biased" else "no bias seen"
    print(f"{row.name:18}{bias:14} variance {row.variance:8.4f}   evaluations {row.evaluations:2}")

# %%
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
ag.plot.bias_variance(report, ax=ax)
plt.show()

# %% [markdown]
# A diamond is bias (hollow: none that could be seen), a disc is spread. Averaging moves discs to the
# left, never diamonds.
#
# ## 3. At equal budgets
#
# What an update sees is bias *and* noise. How they add up depends on how many evaluations of the cost
# you spend on an update.

# %%
size = ag.Exact().evaluate(cost_for(image), q).scores_grad.norm().item()
budgets = torch.logspace(0.6, 3.5, 30)
figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for row in report.rows:
    bias = row.relative_bias if row.verdict == "biased" else 0.0
    error = (bias**2 + row.variance / size**2 * row.evaluations / budgets).sqrt()
    ax.loglog(budgets, error, "--" if row.verdict == "biased" else "-", label=row.name)
ax.set(xlabel="evaluations of the cost for an update", ylabel="relative error")
ax.legend(fontsize=7, ncols=2)
plt.show()

# %% [markdown]
# Dashed lines are biased: they begin low and stay. Solid ones fall for ever.
#
# ## 4. Does it come true?
#
# Train the whole autoencoder, with the same number of steps, with four of them. (`estimator(f, q)`
# returns a loss; everything else is an ordinary loop.)


# %%
def train(estimator, steps=150):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 18))
    out = torch.nn.Sequential(torch.nn.Linear(18, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.Adam([*net.parameters(), *out.parameters()], lr=5e-3)
    noise, course = torch.Generator().manual_seed(2), []
    for _ in range(steps):
        batch = x[torch.randint(len(x), (128,), generator=noise)]
        law = ag.Gibbs(ag.OneHot(), net(batch).view(-1, 3, 6)).independent(1)
        cost = lambda z, batch=batch: (out(z.flatten(-2)) - batch).square().sum(-1)
        loss = estimator(cost, law, generator=noise).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            course.append(cost(law.sample((1,), generator=noise)).mean().item())
    return course


figure, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for way in (ag.Reinforce(1), ag.LeaveOneOut(4), ag.StraightThrough(), ag.ReinMax()):
    course = torch.tensor(train(way))
    ax.plot(course.unfold(0, 10, 1).mean(-1), label=repr(way))
    print(f"{way!r:60} {course[-20:].mean():.2f}")
ax.set(xlabel="step", ylabel="cost with hard choices")
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## 5. Watch it while it trains
#
# `GradientMonitor` tells, during a real run, whether the gradient is mostly noise, whether rows
# starve, and whether classes die.

# %%
monitor = ag.GradientMonitor()
net = torch.nn.Linear(64, 18)
for _ in range(20):
    logits = net(x[torch.randint(len(x), (128,), generator=g)]).view(-1, 3, 6)
    z = ag.gumbel_softmax(monitor.watch("codes", logits, tau=0.5), 0.5, generator=g)
    decoder(z.flatten(1)).square().sum().backward()
print(monitor.table())

# %% [markdown]
# The rules of thumb that come out of many such measurements stand in the documentation under
# *Choose*. The measurement on your own cost is worth more.
