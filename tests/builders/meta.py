"""Gradients and scores by a plain loop."""

import torch
import torch.nn.functional as F


def scores(model: torch.nn.Module, weights: dict[str, torch.Tensor], batch: object) -> torch.Tensor:
    class Scores(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, one: object) -> torch.Tensor:
            found: torch.Tensor = self.model.label_scores(one)  # type: ignore[operator]
            return found

    named = {f"model.{name}": weight for name, weight in weights.items()}
    return torch.func.functional_call(Scores(), named, (batch,))  # type: ignore[no-any-return]


def gradients(
    model: torch.nn.Module, weights: dict[str, torch.Tensor], batch: object
) -> dict[str, torch.Tensor]:
    wanted = {name: one.detach().clone().requires_grad_() for name, one in weights.items()}
    loss = F.cross_entropy(scores(model, wanted, batch), batch.labels)  # type: ignore[attr-defined]
    learnt = {name: one for name, one in wanted.items() if not name.startswith("frozen.")}
    found = torch.autograd.grad(loss, list(learnt.values()), allow_unused=True)
    return {
        name: torch.zeros_like(one) if own is None else own
        for (name, one), own in zip(learnt.items(), found, strict=True)
    }
