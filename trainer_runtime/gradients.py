"""Gradients in flat buffers, so that a step reduces one tensor a dtype."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from trainer_runtime.group import Group


class Gradients:
    """The gradients of `parameters` (those that need one), as views of flat buffers.

    A parameter that a backward pass doesn't reach has gradient 0, not None.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = [each for each in parameters if each.requires_grad]
        if not self.parameters:
            raise ValueError("model: no parameter needs a gradient")
        sizes: dict[torch.dtype, int] = {}
        for each in self.parameters:
            sizes[each.dtype] = sizes.get(each.dtype, 0) + each.numel()
        self.flat = {dtype: torch.zeros(size, dtype=dtype) for dtype, size in sizes.items()}
        self._views: list[torch.Tensor] = []
        used = dict.fromkeys(sizes, 0)
        for each in self.parameters:
            start = used[each.dtype]
            used[each.dtype] = start + each.numel()
            self._views.append(self.flat[each.dtype][start : used[each.dtype]].view_as(each))

    @property
    def buffers(self) -> list[torch.Tensor]:
        return list(self.flat.values())

    def zero(self) -> None:
        """Zero all, and put the views back where an optimizer or the script took them away."""
        for buffer in self.flat.values():
            buffer.zero_()
        for each, view in zip(self.parameters, self._views, strict=True):
            each.grad = view

    def copy(self) -> list[torch.Tensor]:
        return [buffer.clone() for buffer in self.flat.values()]

    def clip(self, most: float) -> float:
        """Scale down to a global norm of at most `most`; after the reduction, so alike on all.
        Returns the norm before."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, most))

    def scale(self, factor: float) -> None:
        for buffer in self.flat.values():
            buffer.mul_(factor)

    def sum_in_order(
        self, group: Group, mine: dict[int, list[torch.Tensor]], owners: list[int]
    ) -> None:
        """The sum of all shards' gradients, added in the order of the shards.

        `mine` holds this rank's shards, `owners` the rank of each shard. The result doesn't depend
        on who computed what, to the last bit; it costs a broadcast a shard.
        """
        self.zero()
        for shard, owner in enumerate(owners):
            for number, total in enumerate(self.flat.values()):
                part = mine[shard][number] if shard in mine else torch.empty_like(total)
                group.broadcast(part, owner)
                total.add_(part)
