"""What trains: data, loss, optimizer, schedule and trainer of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn import functional

from trainer_runtime import ElasticTrainer, TrainerOptions
from trainer_runtime.drain import Drain
from trainer_runtime.recipes import schema
from trainer_runtime.recipes.lora import SameBase, adapt
from trainer_runtime.recipes.models import build


class Samples(Protocol):
    """[n, length + 1] token numbers of n samples."""

    def __len__(self) -> int: ...
    def batch(self, indices: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]: ...


def make_trainer(recipe: schema.Recipe, drain: Drain | None = None) -> ElasticTrainer:
    """One replica, ready to be entered; what the recipe leaves open is taken from the environment.
    Raises RecipeError, and ValueError for an environment that is incomplete."""
    given = recipe.training
    options = TrainerOptions.from_env(
        global_batch=given.global_batch, micro_batch=given.micro_batch, exact=given.exact,
        total_steps=given.total_steps, max_grad_norm=given.max_grad_norm, seed=given.seed,
        checkpoint_dir=given.checkpoint_dir, checkpoint_every=given.checkpoint_every,
        shuffle=recipe.data.shuffle, batch_policy=given.batch_policy,
        base_replicas=given.base_replicas, lr_rule=given.lr_rule, lr_ramp_steps=given.lr_ramp_steps,
    )  # fmt: skip
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    data = samples_of(recipe)
    model = build(recipe.model, given.dtype)
    # With adapters, they alone are what replicas exchange and checkpoints hold.
    replicated, extra = model, {}
    if recipe.mode == "lora":
        replicated = adapt(model, recipe.lora)
        extra = {"base": SameBase(model)}
    if given.gradient_checkpointing:
        checkpoint_layers(model)
    adam = optimizer(model, recipe.optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: rate_factor(step, recipe.schedule, given.total_steps)
    )
    trainer = ElasticTrainer(
        replicated, adam, load=lambda indices: torch.from_numpy(data.batch(indices)),
        loss=loss_of(model, recipe), samples=len(data), options=options, scheduler=schedule,
        extra=extra, tokens_per_sample=recipe.data.length, drain=drain,
    )  # fmt: skip
    if recipe.mode != "pretrain" and recipe.model.weights is None:
        trainer.log(f"model.weights isn't given: {recipe.mode} of random weights")
    every, trained = (
        sum(each.numel() for each in model.parameters() if each.requires_grad or whole)
        for whole in (True, False)
    )
    trainer.log(f"{recipe.name}: {every:,} parameters, {trained:,} trained, {len(data)} samples")
    return trainer


def samples_of(recipe: schema.Recipe) -> Samples:
    """Raises RecipeError if no data is named, or has tokens that the model doesn't know."""
    data, vocabulary = recipe.data, recipe.model.shape.vocab_size
    if data.demo == (data.path is not None):
        raise schema.RecipeError(
            "data: must have one of path, a folder of token shards made with concertina-data, and "
            "demo: true"
        )
    if data.demo:
        from trainer_runtime.examples.corpus import ByteWindows, build, cache_folder

        found: Any = ByteWindows(build(cache_folder()), data.length)
        known = 256
    else:
        from trainer_runtime.data.shards import TokenShards

        found = TokenShards(Path(str(data.path)), data.length)
        known = found.manifest.vocabulary
    if known > vocabulary:
        raise schema.RecipeError(
            f"data: has a vocabulary of {known}, the model's vocab_size is {vocabulary}; take the "
            f"model's tokenizer"
        )
    return found


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


def checkpoint_layers(model: torch.nn.Module) -> None:
    """Keep each layer's input only, and compute the rest again in the backward pass."""
    # transformers renames the method from version 5.24 on.
    new = getattr(model, "activation_checkpointing_enable", None)
    (new or model.gradient_checkpointing_enable)({"use_reentrant": False})


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
