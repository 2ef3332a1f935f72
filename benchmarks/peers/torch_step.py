"""The training step of the orthogonal critic at full width, written the straightforward way in PyTorch.

    python torch_step.py LOG STEPS dense|sparse cpu|cuda      LOG: .npz of codes, sizes and what a step needs

Two networks of two trunks each, an average of their weights, and V of the next states from a third pair; the trunks of
a network share an embedding (one `nn.Embedding` over all fields) and have the same layers. The loss has the terms
of `learning/orthogonal_loss.py`: every head has a target of the same size. Dense: AdamW over everything. Sparse:
`nn.Embedding(sparse=True)` with SparseAdam, AdamW for the rest. Prints seconds a step and the peak of memory in GB.
"""

from __future__ import annotations

import copy
import json
import resource
import sys
import time
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

KEEP = 0.99
TAUGHT = 0.3  # weight of the gradients of effects in the embedding


class Trunk(nn.Module):  # type: ignore[misc]
    """Embedded codes → the last hidden layer."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(widths)])

    def forward(self, h: Tensor) -> Tensor:
        """`[B, in]` → `[B, width]`."""
        for layer in self.layers:
            h = functional.relu(layer(h))
        return h


class Network(nn.Module):  # type: ignore[misc]
    """One of the two networks."""

    def __init__(
        self,
        sizes: np.ndarray,
        embedding: int,
        layers: tuple[int, ...],
        actions: int,
        heads: int,
        functions: int,
        *,
        sparse: bool,
    ) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.as_tensor(np.cumsum(sizes) - sizes))
        self.embedding = nn.Embedding(int(sizes.sum()), embedding, sparse=sparse)
        nn.init.normal_(self.embedding.weight, 0, 0.5)
        widths = (len(sizes) * embedding, *layers)
        self.usual, self.effect = Trunk(widths), Trunk(widths)
        width = layers[-1]
        self.mean, self.logits = nn.Linear(width, 2 * heads), nn.Linear(width, actions)
        self.idle, self.carried = nn.Linear(width, heads), nn.Linear(width, actions * heads * heads)
        self.direct, self.slope = nn.Linear(width, heads * functions), nn.Linear(width, 2 * heads * functions)
        self.level = nn.Linear(2 * width, 2 * heads)

    def features(self, codes: Tensor) -> Tensor:
        """What V is a linear function of, `[B, width]`."""
        return self.usual(self.embedding(codes + self.offsets).flatten(1))

    def forward(self, codes: Tensor) -> tuple[Tensor, ...]:
        """What it says about `[B, F]` states."""
        embedded = self.embedding(codes + self.offsets).flatten(1)
        h, g = self.usual(embedded), self.effect(TAUGHT * embedded + (1 - TAUGHT) * embedded.detach())
        both = torch.cat([h, g], 1).detach()
        return (
            self.mean(h),
            self.logits(h),
            self.idle(h),
            self.carried(h),
            self.direct(g),
            self.slope(g),
            self.level(both),
        )


def tell(pair: nn.ModuleList, codes: Tensor) -> tuple[Tensor, ...]:
    """What both networks say, stacked."""
    return tuple(torch.stack(part) for part in zip(*(network(codes) for network in pair), strict=True))


def main() -> None:
    """Time the steps."""
    log, steps, sparse = np.load(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "sparse"
    sizes, batch, embedding = log["sizes"], int(log["batch"]), int(log["embedding"])
    layers = tuple(int(width) for width in log["layers"])
    actions, heads, functions = (int(log[name]) for name in ("actions", "heads", "functions"))
    device = torch.device(sys.argv[4])
    torch.set_default_device(device)
    torch.manual_seed(0)
    pair = nn.ModuleList(
        [Network(sizes, embedding, layers, actions, heads, functions, sparse=sparse) for _ in range(2)]
    )
    averaged, value = copy.deepcopy(pair), copy.deepcopy(pair)
    value_heads = nn.ModuleList([nn.Linear(layers[-1], heads) for _ in pair])
    for part in (averaged, value, value_heads):
        part.requires_grad_(False)
    tables = [parameter for name, parameter in pair.named_parameters() if "embedding" in name]
    others = [parameter for name, parameter in pair.named_parameters() if "embedding" not in name]
    if sparse:
        optimisers = [torch.optim.SparseAdam(tables, lr=1e-3), torch.optim.AdamW(others, lr=1e-3)]
    else:
        optimisers = [torch.optim.AdamW([*tables, *others], lr=1e-3)]
    fold = torch.arange(batch) // (batch // 2)
    row = torch.arange(batch)
    basis = torch.randn(actions, functions)
    rng = np.random.default_rng(0)

    def step() -> float:
        rows = rng.integers(len(log_codes), size=batch)
        codes, after = (torch.from_numpy(log_codes[at].astype(np.int64)).to(device) for at in (rows, log_next[rows]))
        action, day = (torch.from_numpy(of[rows]).to(device) for of in (log_action, log_outcome))
        moved = basis[action]
        with torch.no_grad():
            mean, logits, _, carried, direct, slope, _ = tell(averaged, codes)
            ahead = torch.stack(
                [head(network.features(after)) for head, network in zip(value_heads, value, strict=True)]
            )
            usual = mean[1 - fold, row].view(batch, 2, heads)
            prob = logits[1 - fold, row].softmax(1)
            less = moved - prob @ basis
            by = carried.mean(0).view(batch, actions, heads, heads)[row, action]
            effect = (direct.mean(0).view(batch, heads, functions) * less[:, None]).sum(2)
            expected = (slope.mean(0).view(batch, 2, heads, functions)[:, 0] * less[:, None]).sum(2)
            luck = day - usual[:, 0] - expected
            wanted = torch.stack(
                [day - usual[:, 0], effect + 0.5 * (ahead[1 - fold, row] - (by * luck[:, None]).sum(2))], 1
            )
        mean, logits, idle, carried, direct, slope, level = tell(pair, codes)
        own, other = ahead[fold, row], ahead[1 - fold, row]
        target = torch.stack([day, own], 1).flatten(1)
        change = (direct.view(2, batch, heads, functions)[fold, row] * less[:, None]).sum(2)
        change = change + (carried.view(2, batch, actions, heads, heads)[fold, row, action] * day[:, None]).sum(2)
        loss = functional.mse_loss(mean[fold, row], target) + functional.cross_entropy(logits[fold, row], action)
        loss = loss + 0.04 * functional.mse_loss(idle[fold, row] + change, own)
        told = (slope.view(2, batch, 2, heads, functions) * less[:, None, None]).sum(4)
        loss = loss + 2 * functional.mse_loss(told, wanted.expand(2, -1, -1, -1))
        both = torch.stack([day, other], 1)
        loss = loss + 2 * functional.mse_loss(
            level.view(2, batch, 2, heads) + told.detach(), both.expand(2, -1, -1, -1)
        )
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(averaged.parameters()), list(pair.parameters()), 1 - KEEP)
        return float(loss.item())

    log_codes, log_next, log_action, log_outcome = (log[name] for name in ("codes", "next", "action", "outcome"))
    for _ in range(3):
        step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    seconds = (time.perf_counter() - began) / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "peak": peak}))


if __name__ == "__main__":
    main()
