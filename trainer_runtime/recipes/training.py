"""What trains: loss, optimizer and schedule of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from trainer_runtime.recipes import schema


def loss_of(model: torch.nn.Module, recipe: schema.Recipe) -> Callable[[torch.Tensor], Any]:
    """tokens [n, length + 1] -> the sum over the n samples of their mean loss a token.

    With `router_aux_loss_coef` the experts' load balance of the micro-batch is added (Fedus et al.,
    arXiv 2101.03961); micro-batches are the same at every number of replicas, so the sum is too.
    """
    oss = recipe.model.gpt_oss
    balance = oss.router_aux_loss_coef if oss else 0.0
    more = {"output_router_logits": True} if balance else {}

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        out = model(input_ids=tokens[:, :-1], **more)
        each = functional.cross_entropy(
            out.logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
        )
        total = each / (tokens.shape[1] - 1)
        return total + balance * len(tokens) * out.aux_loss if balance else total

    return loss


def optimizer(model: torch.nn.Module, options: schema.Optimizer) -> torch.optim.AdamW:
    """AdamW over what needs a gradient, in two groups: matrices decay; biases (also the experts',
    which are stacked to matrices), norms and sinks don't."""
    groups: dict[bool, list[torch.nn.Parameter]] = {True: [], False: []}
    for name, each in model.named_parameters():
        if each.requires_grad:
            groups[each.ndim >= 2 and not name.endswith("bias")].append(each)
    return torch.optim.AdamW(
        [
            {"params": params, "weight_decay": options.weight_decay if decays else 0.0}
            for decays, params in groups.items()
            if params
        ],
        lr=options.learning_rate, betas=(options.beta1, options.beta2), eps=options.eps,
    )  # fmt: skip


def rate_factor(step: int, schedule: schema.Schedule, total: int | None) -> float:
    """What the learning rate is multiplied by after `step` committed steps."""
    if step < schedule.warm_up_steps:
        return (step + 1) / schedule.warm_up_steps
    if schedule.kind == "constant" or total is None:
        return 1.0
    span = max(1, total - schedule.warm_up_steps)
    part = min(1.0, (step - schedule.warm_up_steps) / span)
    if schedule.kind == "cosine":
        part = (1 - math.cos(math.pi * part)) / 2
    return 1.0 - (1.0 - schedule.final) * part
