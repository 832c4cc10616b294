"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al., 2024).

With only a few hundred steps it learns clearly faster than Adam on the heads' matrices.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

# Newton-Schulz iterations. "classic" is that of the reference implementation: singular values end
# between 0.7 and 1.2. "short" is the beginning of Polar Express (Amsel et al., 2025), two fifths
# cheaper: they end between 0.2 and 1.9, which still evens out gradients a thousand times wider.
COEFFICIENTS = {
    "classic": ((3.4445, -4.7750, 2.0315),) * 5,
    "short": (
        (8.28721201814563, -23.595886519098837, 17.300387312530933),
        (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
        (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    ),
}


def orthogonalise(matrix: torch.Tensor, iteration: str = "classic") -> torch.Tensor:
    """A matrix with the singular vectors of the given one and singular values near 1."""
    x = matrix / (matrix.norm() * 1.01 + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for a, b, c in COEFFICIENTS[iteration]:
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum with orthogonalised updates, for two-dimensional parameters."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 0.01,
        momentum: float = 0.95,
        iteration: str = "classic",
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})
        self.iteration = iteration

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["buffer"] = torch.zeros_like(p)
                buffer = state["buffer"]
                buffer.lerp_(p.grad, 1 - group["momentum"])
                nesterov = p.grad.lerp(buffer, group["momentum"])
                update = orthogonalise(nesterov, self.iteration)
                # Root mean square of an update: about that of a unit-variance fan-in init.
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.add_(update, alpha=-group["lr"] * scale)
