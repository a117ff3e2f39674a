"""What happens to an object before it is stored: defaults, then validation.

As in the real server this runs for every writer, the controllers included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.sandbox.kinds import KindInfo
from controlplane.sandbox.objects import Object

if TYPE_CHECKING:
    from controlplane.sandbox.store import Store


def on_create(store: Store, kind: KindInfo, obj: Object) -> Object:
    return obj


def on_update(
    store: Store, kind: KindInfo, old: Object, new: Object, subresource: str | None
) -> Object:
    return new
