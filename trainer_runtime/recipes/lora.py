"""Low-rank adapters over linear layers (Hu et al., LoRA, arXiv 2106.09685).

Our own, since `peft` brings requirements that a resolver answers with another build of torch. The
base stays frozen and is never sent to a peer: replicas take it from the same seed or folder, and
`SameBase` refuses one that differs. Mixtures of experts hold their experts as stacked parameters,
not as linear layers: there the attention can be adapted.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import xxhash
from torch.nn import functional

from trainer_runtime.recipes.schema import Lora, RecipeError, suggest


class LoraLinear(torch.nn.Module):
    """x [..., in] -> base(x) + alpha / rank * up(down(dropout(x))), [..., out]. The adapters are
    float32 whatever the base is: small updates get lost in bfloat16."""

    def __init__(self, base: torch.nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.base, self.dropout, self.scale = base, dropout, alpha / rank
        self.base.requires_grad_(False)
        like: dict[str, Any] = {"device": base.weight.device, "dtype": torch.float32}
        self.down = torch.nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, **like))
        torch.nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out = self.base(inputs)
        low = functional.dropout(inputs.to(self.down.dtype), self.dropout, self.training)
        low = functional.linear(functional.linear(low, self.down), self.up)
        return out + (self.scale * low).to(out.dtype)

    @torch.no_grad()
    def merged(self) -> torch.nn.Linear:
        """The base with the adapters added to its weight; the base is changed."""
        change = self.scale * (self.up @ self.down)
        self.base.weight.copy_(self.base.weight.float() + change)
        return self.base


class Adapters(torch.nn.Module):
    """A model's adapters by themselves: the state that replicas exchange. Its parameters are the
    model's own, so that training one trains the other."""

    def __init__(self, adapted: dict[str, LoraLinear]) -> None:
        super().__init__()
        for name, layer in adapted.items():
            flat = name.replace(".", "/")  # a parameter's name has no dots
            self.register_parameter(f"{flat}/down", layer.down)
            self.register_parameter(f"{flat}/up", layer.up)


def adapt(model: torch.nn.Module, lora: Lora) -> Adapters:
    """Freeze the model and put adapters over its linear layers whose last name is a target.
    Raises RecipeError for a target that no layer has."""
    linear = {
        name: each for name, each in model.named_modules() if isinstance(each, torch.nn.Linear)
    }
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in lora.targets:
        if target not in known:
            raise RecipeError(
                f"lora.targets: {target!r} is no linear layer of this model; "
                f"{suggest(target, known)}"
            )
    model.requires_grad_(False)
    adapted = {}
    for name, each in linear.items():
        parent, _, last = name.rpartition(".")
        if last in lora.targets:
            adapted[name] = LoraLinear(each, lora.rank, lora.alpha, lora.dropout)
            setattr(model.get_submodule(parent), last, adapted[name])
    return Adapters(adapted)


def merge(model: torch.nn.Module) -> None:
    """Every adapted layer becomes a plain one again, with its adapters in its weight."""
    for name, each in list(model.named_modules()):
        if isinstance(each, LoraLinear):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, each.merged())


class SameBase:
    """Part of the replicated state: a digest of the frozen weights, which must be the same on all
    replicas. Made once; the weights don't change."""

    def __init__(self, model: torch.nn.Module) -> None:
        digest = xxhash.xxh3_64()
        for name, each in sorted(model.named_parameters()):
            if not each.requires_grad:
                digest.update(name)
                digest.update(each.detach().cpu().contiguous().view(torch.uint8).numpy())
        self.digest = digest.hexdigest()

    def state_dict(self) -> dict[str, Any]:
        return {"digest": self.digest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises RecipeError, which ends this replica: trying again can't help."""
        if state["digest"] != self.digest:
            raise RecipeError(
                f"model: the frozen weights differ from those of the state ({self.digest} here, "
                f"{state['digest']} there); start all replicas with the same recipe, "
                f"model.weights and seed"
            )
