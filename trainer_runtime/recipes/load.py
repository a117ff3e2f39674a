"""From a recipe's name to a recipe: its file, the layer of its mode, that of its size, `--set`.

Each layer is a tree like the recipe itself that says only what differs:

    modes:
      lora: {optimizer: {learning_rate: 2.0e-4}}
    sizes:
      ">=8": {training: {micro_batch: 2}}

Later layers win: file, `modes`, `sizes`, `--set`. A size is the largest number of replicas that the
job may have. It is chosen once, at the start: a recipe never changes while it is trained, and all
replicas of a job must be started with the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from trainer_runtime.recipes.schema import Recipe, RecipeError, recipe, suggest

Tree = dict[str, Any]
MODES = ("pretrain", "finetune", "lora")
_COMPARE = {
    "": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """`sizes`: the conditions that held, in the file's order."""

    recipe: Recipe
    tree: Tree
    sizes: tuple[str, ...]


def names() -> list[str]:
    """The recipes of this package."""
    folder = resources.files("trainer_runtime.recipes")
    return sorted(
        each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")
    )


def load(name: str, settings: Sequence[str] = (), *, max_replicas: int | None = None) -> Loaded:
    """`name`: of a recipe here, or a path that ends with .yaml. `settings`: `a.b=c`, each.
    Without `max_replicas` no size holds. Raises RecipeError; OSError for an unreadable path."""
    base = _read(name)
    modes, sizes = _layers(base, "modes"), _layers(base, "sizes")
    for mode in modes:
        if mode not in MODES:
            raise RecipeError(f"modes.{mode}: unknown key; {suggest(mode, list(MODES))}")
    given = _settings(settings)
    mode = merge(base, given).get("mode", "pretrain")
    tree = merge(base, modes.get(mode, {}) if isinstance(mode, str) else {})
    held = tuple(
        str(size) for size in sizes
        if _holds(size, max_replicas) and max_replicas is not None
    )  # fmt: skip
    # A layer that is wrong is refused where it is written, not on the day it is first chosen.
    for kind, layers in (("modes", modes), ("sizes", sizes)):
        for key, layer in layers.items():
            _try(merge(tree, layer), f"{kind}.{key}")
    for size in held:
        tree = merge(tree, sizes[size])
    tree = merge(tree, given)
    return Loaded(recipe(tree), tree, held)


def merge(tree: Tree, over: Tree) -> Tree:
    """`over` on `tree`, key by key; neither is changed. Anything but a mapping is replaced."""
    out = dict(tree)
    for key, value in over.items():
        before = out.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        out[key] = merge(before, value) if both else value  # type: ignore[arg-type]
    return out


def _read(name: str) -> Tree:
    if name.endswith(".yaml"):
        text, where = Path(name).read_text(), name
    elif name in names():
        where = f"{name}.yaml"
        text = resources.files("trainer_runtime.recipes").joinpath(where).read_text()
    else:
        raise RecipeError(f"recipe: {name!r} isn't there; {suggest(name, names())}")
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where}: isn't YAML: {error}") from None
    if not isinstance(tree, dict):
        raise RecipeError(f"{where}: must be a mapping of keys (got {tree!r})")
    return tree


def _layers(base: Tree, name: str) -> Tree:
    """Takes `modes` or `sizes` out of the tree."""
    layers = base.pop(name, None) or {}
    if not isinstance(layers, dict):
        raise RecipeError(f"{name}: must be a mapping of keys (got {layers!r})")
    for key, layer in layers.items():
        if not isinstance(layer, dict):
            raise RecipeError(f"{name}.{key}: must be a mapping of keys (got {layer!r})")
        for fixed in {"name", "model", "mode", "sizes", "modes"} & layer.keys():
            if fixed != "model" or set(layer["model"] or ()) - {"weights"}:
                raise RecipeError(f"{name}.{key}.{fixed}: can't differ; a recipe of its own can")
    return {str(key): layer for key, layer in layers.items()}


def _try(tree: Tree, where: str) -> None:
    try:
        recipe(tree)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from None


def _holds(size: str, replicas: int | None) -> bool:
    found = re.fullmatch(r"\s*(>=|<=|>|<|)\s*([1-9]\d*)\s*", size)
    if found is None:
        raise RecipeError(
            f'sizes.{size}: must be a number of replicas or a bound, such as 4 or ">=8"'
        )
    return replicas is not None and _COMPARE[found[1]](replicas, int(found[2]))


def _settings(settings: Sequence[str]) -> Tree:
    tree: Tree = {}
    for text in settings:
        path, equals, value = text.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(f"--set {text}: must be path=value, such as training.micro_batch=4")
        if keys[0] in ("sizes", "modes"):
            raise RecipeError(f"--set {text}: {keys[0]} can't be set; set the value itself")
        try:
            node: Any = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RecipeError(f"--set {text}: the value isn't YAML; quote it") from None
        for key in reversed(keys):
            node = {key: node}
        tree = merge(tree, node)
    return tree
