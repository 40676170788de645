"""The tree of a sentence.

A parser scores every head-and-word pair; a rooted tree has to come out. `Arborescence` has the best
tree (Chu-Liu-Edmonds), the probability of every arc (left) and exact samples; training towards observed
trees is one line, `FenchelYoung` ([Arborescence](../structures/arborescence.md)). Here the scores are
trained on a single sentence, for 30 steps.
"""

import matplotlib.pyplot as plt
import torch

import argrad as ag

words = ["*", "we", "saw", "the", "big", "cat"]
heads = [None, 2, 0, 5, 5, 2]  # "saw" hangs on the root, "we" and "cat" on "saw", ...
gold = torch.zeros(6, 6)
for child, head in enumerate(heads):
    if head is not None:
        gold[head, child] = 1.0

torch.manual_seed(0)
scores = torch.nn.Parameter(torch.randn(6, 6))
loss_of = ag.FenchelYoung(ag.Arborescence(root=0))  # here: the negative log-likelihood
optimizer = torch.optim.Adam([scores], lr=0.2)
for _ in range(30):
    loss = loss_of(scores, gold)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

q = ag.Gibbs(ag.Arborescence(root=0), scores.detach())
torch.equal(q.mode, gold)  # -> True
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.imshow(q.mean, cmap="Blues", vmin=0, vmax=1)
left.set(
    xticks=range(6), yticks=range(6), xlabel="word", ylabel="head", title="probability of every arc"
)
left.set_xticklabels(words, rotation=30)
left.set_yticklabels(words)
ag.plot.tree(q.mode, names=words, title="the best tree", ax=right)
plt.show()
