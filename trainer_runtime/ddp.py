"""A script that uses DistributedDataParallel, unchanged but for the wrapping.

DDP is built over a group of this process alone; its communication hook hands each bucket through,
and the runtime reduces across replicas after the backward pass. So a change of members never
touches DDP's own state, and an exception in a reduction can't ruin it.
"""

# No `from __future__ import annotations`: DDP looks at the hook's annotations as they are.
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def hand_through(_: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """The communication hook: the bucket as it is, at once."""
    future: Future[torch.Tensor] = Future()
    future.set_result(bucket.buffer())
    return future


def wrap(module: torch.nn.Module, **options: Any) -> DistributedDataParallel:
    """`module` in DDP, over a group of one. `options` are DDP's own."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    elif dist.get_world_size() != 1 and "process_group" not in options:
        raise ValueError(
            f"process group: has {dist.get_world_size()} ranks; DDP must be over this process "
            "alone, since the runtime reduces across replicas: don't call init_process_group, or "
            "give process_group=dist.new_group([rank])"
        )
    wrapped = DistributedDataParallel(module, **options)
    wrapped.register_comm_hook(None, hand_through)
    return wrapped
