"""How much memory a replica of a recipe needs, before it is started: nothing is allocated.

Parameters are counted on the meta device. Activations are what autograd keeps of one micro-batch,
seen on fake tensors with one and with two layers: a layer more is the difference, and what is left
belongs to embeddings, head and loss.

Left out: temporaries of kernels and optimizer, the allocator's fragmentation, the framework itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainer_runtime.recipes.lora import adapt
from trainer_runtime.recipes.models import DTYPES, build
from trainer_runtime.recipes.schema import Recipe
from trainer_runtime.recipes.training import loss_of

GIB = 2**30
_ADAM_STATES = 2  # exp_avg and exp_avg_sq, in the parameter's dtype


@dataclass(frozen=True)
class Memory:
    """Bytes of one replica. `ordered`: copies of gradients that `training.exact` keeps."""

    parameter_count: int
    trainable_count: int
    parameters: int
    gradients: int
    ordered: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.ordered + self.optimizer + self.activations

    def sharded(self, replicas: int) -> Memory:
        """With the optimizer's state sharded over replicas (ZeRO-1, arXiv 1910.02054), a copy
        each."""
        return replace(self, optimizer=-(-self.optimizer // replicas))


def memory(recipe: Recipe, replicas: int = 1) -> Memory:
    """For one replica of `replicas`, with the whole optimizer."""
    with torch.device("meta"):
        model = build(recipe.model, recipe.training.dtype, weights=False)
        if recipe.mode == "lora":
            adapt(model, recipe.lora)
    every = list(model.parameters())
    trained = [each for each in every if each.requires_grad]
    gradients = _bytes(trained)
    training = recipe.training
    shards = -(-training.global_batch // training.micro_batch)
    # One for each own micro-batch, and one that the others' are received into (gradients.py).
    copies = -(-shards // replicas) + 1 if training.exact else 0
    return Memory(
        parameter_count=sum(each.numel() for each in every),
        trainable_count=sum(each.numel() for each in trained),
        parameters=_bytes(every), gradients=gradients, ordered=copies * gradients,
        optimizer=_ADAM_STATES * gradients, activations=activations(recipe),
    )  # fmt: skip


def activations(recipe: Recipe) -> int:
    """Bytes at the start of a micro-batch's backward pass, when they are most."""
    shape, training = recipe.model.shape, recipe.training
    one, two = _kept(recipe, 1), _kept(recipe, 2)
    layer, rest = two - one, 2 * one - two
    width = DTYPES[training.dtype].itemsize
    tokens = training.micro_batch * recipe.data.length
    # The gradients of the logits: in float32 for the loss, and in the model's dtype if it differs.
    head = tokens * shape.vocab_size * (4 + (width if width < 4 else 0))
    if training.gradient_checkpointing:
        # Every layer's input, and all of the one that is computed again.
        layers = shape.num_hidden_layers * tokens * shape.hidden_size * width + layer
    else:
        layers = shape.num_hidden_layers * layer
    return rest + layers + head


def kept_by_autograd(forward: Callable[[], Any], parameters: list[torch.Tensor], width: int) -> int:
    """Bytes of the storages, other than parameters', that the forward pass leaves for the backward
    pass, with `width` bytes for an element of 2 bytes."""
    own = {each.untyped_storage()._cdata for each in parameters}
    seen: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            size = storage.nbytes()
            if tensor.dtype == torch.bfloat16:
                size = size // 2 * width
            seen[storage._cdata] = (size, tensor)  # the tensor too: an address may come again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    del result
    return sum(size for size, _ in seen.values())


def _kept(recipe: Recipe, layers: int) -> int:
    """Of a model with so many layers. Always counted in bfloat16, since grouped matrix products
    have no other fake; in float32 the same tensors are kept, twice as wide."""
    shape = replace(recipe.model.shape, num_hidden_layers=layers)
    name = "llama" if recipe.model.llama else "gpt_oss"
    # Balancing the experts keeps a few numbers a token, and its histogram has no fake.
    more = {"router_aux_loss_coef": 0.0} if name == "gpt_oss" else {}
    model_recipe = replace(recipe.model, **{name: replace(shape, **more)})
    with warnings.catch_warnings(), FakeTensorMode():
        warnings.simplefilter("ignore")
        model = build(model_recipe, "bfloat16", weights=False)
        if recipe.mode == "lora":
            adapt(model, recipe.lora)
        loss = loss_of(model, replace(recipe, model=model_recipe))
        size = (recipe.training.micro_batch, recipe.data.length + 1)
        tokens = torch.zeros(size, dtype=torch.long)
        width = DTYPES[recipe.training.dtype].itemsize
        return kept_by_autograd(lambda: loss(tokens), list(model.parameters()), width)


def table(recipe: Recipe, replicas: int) -> str:
    """What a person reads: GiB of one replica, with the optimizer whole and sharded."""
    whole = memory(recipe, replicas)
    both = (whole, whole.sharded(replicas))
    lines = [
        f"{recipe.name}, {recipe.mode}: {whole.parameter_count:,} parameters, "
        f"{whole.trainable_count:,} trained, {recipe.training.dtype}",
        f"GiB of one replica of {replicas}     whole optimizer   sharded (ZeRO-1)",
    ]
    for name in ("parameters", "gradients", "ordered", "optimizer", "activations", "total"):
        values = [getattr(each, name) / GIB for each in both]
        if name != "ordered" or recipe.training.exact:
            lines.append(f"{name:<26}{values[0]:>18.3f}{values[1]:>19.3f}")
    return "\n".join(lines)


def _bytes(tensors: list[torch.nn.Parameter]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
