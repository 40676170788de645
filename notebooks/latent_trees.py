# %% [markdown]
# # Latent trees
#
# Eight sensors, connected by a tree that nobody knows: each reading is a noisy copy of its
# neighbour's. Can a model find the tree from the readings alone? It has to *choose* a spanning tree,
# one of $8^6 = 262\,144$, and be trained by gradient.

# %%
import matplotlib.pyplot as plt
import torch

import argrad as ag

torch.manual_seed(0)
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)

# %% [markdown]
# ## 1. Data from a hidden tree

# %%
n = 8
hidden = ag.Gibbs(ag.SpanningTree(), torch.zeros(n, n)).sample(generator=g)  # a uniformly random tree
x = torch.zeros(2000, n)
x[:, 0] = torch.randn(2000, generator=g)
todo, done = [0], {0}
while todo:  # readings spread along the edges
    here = todo.pop()
    for there in hidden[here].nonzero().flatten().tolist():
        if there not in done:
            x[:, there] = 0.8 * x[:, here] + 0.6 * torch.randn(2000, generator=g)
            todo.append(there)
            done.add(there)
ag.SpanningTree().count((n, n)), int(hidden.sum()) // 2

# %% [markdown]
# ## 2. A law over trees
#
# `Gibbs(SpanningTree(), scores)` is a distribution over all trees. Edge probabilities, entropy, exact
# samples and log-probabilities cost a determinant's work, not 262 144 terms.

# %%
scores = torch.zeros(n, n)
q = ag.Gibbs(ag.SpanningTree(), scores)
trees = q.sample((1000,), generator=g)
print(f"entropy {q.entropy():.3f} = log of 8^6 = {6 * torch.log(torch.tensor(8.0)):.3f}")
print(f"an edge: probability {q.mean[0, 1]:.3f}, share among 1000 samples {trees[:, 0, 1].mean():.3f}")

# %% [markdown]
# ## 3. The model
#
# Predict every sensor from its neighbours *in the chosen tree*, with weights that are learned too.
# The choice is a perturbed tree, hard in the forward pass, relaxed in the backward pass.


# %%
def reconstruction(z, weights, batch):
    """Squared error when node i is predicted from its neighbours in tree `z`."""
    share = z / z.sum(-1, keepdim=True).clamp(min=1e-6)  # the mean of its neighbours
    guess = torch.einsum("...ij,ij,bj->...bi", share, weights, batch)
    return (guess - batch).square().mean(-2).sum(-1)


scores = torch.nn.Parameter(torch.zeros(n, n))
weights = torch.nn.Parameter(torch.full((n, n), 0.8))
optimizer = torch.optim.Adam([{"params": [scores], "lr": 0.1}, {"params": [weights], "lr": 0.01}])
course = []
for step in range(200):
    batch = x[torch.randint(len(x), (64,), generator=g)]
    tau = max(0.3, 1.0 - step / 200)
    law = ag.Perturbed(ag.SpanningTree(), (scores + scores.mT) / 2)
    z = law.rsample((16,), tau=tau, hard=True, generator=g)  # sixteen trees
    loss = reconstruction(z, weights, batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    course.append(loss.item())
symmetric = ((scores + scores.mT) / 2).detach()
found = ag.SpanningTree().argmax(symmetric)
print(f"error {course[0]:.2f} at first, {sum(course[-20:]) / 20:.2f} at the end")
print(f"{int((found * hidden).sum()) // 2} of {n - 1} edges found")

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
ag.plot.graph(hidden, title="the hidden tree", color="#009E73", ax=axes[0])
ag.plot.graph(ag.SpanningTree().marginals(symmetric), title="edge probabilities, learned", ax=axes[1])
ag.plot.graph(found, title="the best tree", ax=axes[2])
plt.show()

# %% [markdown]
# ## 4. Without a path: the cost as a black box
#
# If the cost could not be differentiated for the tree, a score-function estimator trains the same law
# from costs alone. `Gibbs` has exact log-probabilities, so nothing is approximated.

# %%
scores = torch.nn.Parameter(torch.zeros(n, n))
optimizer = torch.optim.Adam([scores], lr=0.1)
fixed = torch.full((n, n), 0.8)
for _ in range(200):
    batch = x[torch.randint(len(x), (64,), generator=g)]
    law = ag.Gibbs(ag.SpanningTree(), (scores + scores.mT) / 2)
    cost = lambda z, batch=batch: reconstruction(z, fixed, batch).detach()  # values only
    loss = ag.LeaveOneOut(32)(cost, law, generator=g)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
found = ag.SpanningTree().argmax(((scores + scores.mT) / 2).detach())
print(f"{int((found * hidden).sum()) // 2} of {n - 1} edges found")

# %% [markdown]
# ## 5. Learn from observed trees
#
# When trees *are* observed, the negative log-likelihood is one line, and so is the temperature that
# makes edge probabilities mean what they say.

# %%
observed = ag.Gibbs(ag.SpanningTree(), 2 * hidden).sample((500,), generator=g)
scores = torch.nn.Parameter(torch.zeros(n, n))
optimizer = torch.optim.Adam([scores], lr=0.2)
for _ in range(60):
    loss = ag.FenchelYoung(ag.SpanningTree())(
        (scores + scores.mT).expand(500, n, n) / 2, observed
    ).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
learned = ag.SpanningTree().marginals(((scores + scores.mT) / 2).detach())
gap = (learned - observed.mean(0)).abs().max()
print(f"largest gap between learned edge probabilities and observed shares: {gap:.3f}")

# %% [markdown]
# The same lines work for rooted trees (`Arborescence`), k-subsets, tag sequences; only the
# structure's name changes. The recipes `nri-tree` and `listops` are the published experiments with
# latent trees.
