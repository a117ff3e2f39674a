"""How much memory a replica of a recipe needs, before it is started: nothing is allocated.

Parameters are counted on the meta device. Activations are what autograd keeps of one micro-batch,
seen on fake tensors with one and with two layers: a layer more is the difference, and what is left
belongs to embeddings, head and loss.

Left out: temporaries of kernels and optimizer, the allocator's fragmentation, the framework itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def kept_by_autograd(
    forward: Callable[[], Any],
    parameters: Sequence[torch.Tensor],
    *,
    widen: int = 1,
    mask: int | None = None,
) -> int:
    """Bytes of the storages, other than parameters', that the forward pass leaves for the backward
    pass. bfloat16 counts `widen` times; attention masks, [n, 1, `mask`, `mask`], don't count."""
    own = {each.untyped_storage()._cdata for each in parameters}
    seen: dict[int, tuple[int, torch.Tensor]] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        masks = tensor.ndim == 4 and tuple(tensor.shape[1:]) == (1, mask, mask)
        if storage._cdata not in own and not masks:
            times = widen if tensor.dtype == torch.bfloat16 else 1
            # The tensor too: the address of one that is gone may come again.
            seen[storage._cdata] = (storage.nbytes() * times, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    del result
    return sum(size for size, _ in seen.values())


def _kept(recipe: Recipe, layers: int) -> int:
    """Of a model with so many layers."""
    length, dtype = recipe.data.length, recipe.training.dtype
    options: dict[str, Any] = {}
    if recipe.model.llama is not None:
        changes: dict[str, Any] = {"llama": replace(recipe.model.llama, num_hidden_layers=layers)}
        # Fake tensors are given a causal mask; real ones need none, the kernel knows it.
        options["mask"] = length
    else:
        assert recipe.model.gpt_oss is not None
        # Balancing the experts keeps a few numbers a token, and its histogram has no fake.
        shape = replace(recipe.model.gpt_oss, num_hidden_layers=layers, router_aux_loss_coef=0.0)
        changes = {"gpt_oss": shape}
        # Grouped matrix products have a fake in bfloat16 only. In float32 the same is kept, wider.
        options["widen"] = DTYPES[dtype].itemsize // 2
        dtype = "bfloat16"
    few = replace(recipe, model=replace(recipe.model, **changes))
    with FakeTensorMode():
        model = build(few.model, dtype, weights=False)
        if recipe.mode == "lora":
            adapt(model, recipe.lora)
        loss = loss_of(model, few)
        tokens = torch.zeros((recipe.training.micro_batch, length + 1), dtype=torch.long)
        return kept_by_autograd(lambda: loss(tokens), list(model.parameters()), **options)


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
