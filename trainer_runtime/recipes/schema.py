"""What a recipe says, as dataclasses, and how a tree of YAML values becomes one.

Every mistake is refused with the field's path, the value and the remedy. Standard library only.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


class RecipeError(ValueError):
    """A recipe that can't be used as it is; its text names the field, the value and the remedy."""


def bounded(default: Any = MISSING, *, least: float | None = None, below: float | None = None,
            above: float | None = None) -> Any:  # fmt: skip
    """A field with bounds: at least `least`, less than `below`, more than `above`."""
    bounds = {"least": least, "below": below, "above": above}
    return field(default=default, metadata=bounds)


@dataclass(frozen=True)
class Llama:
    """Keyword arguments of transformers' LlamaConfig, with Llama 3's values where they are left
    out (huggingface.co/meta-llama/Meta-Llama-3-8B, config.json)."""

    hidden_size: int = bounded(least=1)
    intermediate_size: int = bounded(least=1)
    num_hidden_layers: int = bounded(least=1)
    num_attention_heads: int = bounded(least=1)
    num_key_value_heads: int = bounded(least=1)
    vocab_size: int = bounded(128256, least=1)
    max_position_embeddings: int = bounded(8192, least=1)
    rope_theta: float = bounded(500000.0, above=0)
    rms_norm_eps: float = bounded(1e-5, above=0)
    initializer_range: float = bounded(0.02, above=0)
    tie_word_embeddings: bool = False


@dataclass(frozen=True)
class GptOss:
    """Keyword arguments of transformers' GptOssConfig, with the published models' values where
    they are left out (huggingface.co/openai/gpt-oss-20b, config.json)."""

    num_hidden_layers: int = bounded(least=1)
    num_local_experts: int = bounded(least=1)
    hidden_size: int = bounded(2880, least=1)
    intermediate_size: int = bounded(2880, least=1)
    num_attention_heads: int = bounded(64, least=1)
    num_key_value_heads: int = bounded(8, least=1)
    head_dim: int = bounded(64, least=2)
    num_experts_per_tok: int = bounded(4, least=1)
    vocab_size: int = bounded(201088, least=1)
    sliding_window: int = bounded(128, least=1)
    max_position_embeddings: int = bounded(131072, least=1)
    rms_norm_eps: float = bounded(1e-5, above=0)
    initializer_range: float = bounded(0.02, above=0)
    router_aux_loss_coef: float = bounded(0.0, least=0)
    tie_word_embeddings: bool = False


@dataclass(frozen=True)
class Model:
    """Exactly one architecture. `weights`: a local folder with safetensors; None: random."""

    llama: Llama | None = None
    gpt_oss: GptOss | None = None
    weights: str | None = None

    @property
    def shape(self) -> Llama | GptOss:
        shape = self.llama or self.gpt_oss
        assert shape is not None  # validated
        return shape


@dataclass(frozen=True)
class Data:
    """`path`: a folder of token shards; or `demo`: the standard library's sources as bytes.
    `length`: tokens in a sample."""

    length: int = bounded(least=1)
    path: str | None = None
    demo: bool = False
    shuffle: bool = True


@dataclass(frozen=True)
class Training:
    """Batches in samples, of all replicas together; what isn't given is taken from the replica's
    environment (options.py)."""

    global_batch: int = bounded(least=1)
    micro_batch: int = bounded(1, least=1)
    total_steps: int | None = bounded(None, least=1)
    dtype: Literal["float32", "bfloat16"] = "float32"
    exact: bool = False
    gradient_checkpointing: bool = False
    max_grad_norm: float | None = bounded(1.0, above=0)
    batch_policy: Literal["preserve", "scale"] = "preserve"
    base_replicas: int = bounded(1, least=1)
    lr_rule: Literal["none", "linear", "sqrt"] = "none"
    lr_ramp_steps: int = bounded(0, least=0)
    seed: int | None = None
    checkpoint_dir: str | None = None
    checkpoint_every: int | None = bounded(None, least=0)
    print_every: int = bounded(10, least=1)


@dataclass(frozen=True)
class Optimizer:
    """AdamW; `weight_decay` is for matrices only, not for biases, norms and sinks."""

    learning_rate: float = bounded(above=0)
    weight_decay: float = bounded(0.1, least=0)
    beta1: float = bounded(0.9, least=0, below=1)
    beta2: float = bounded(0.95, least=0, below=1)
    eps: float = bounded(1e-8, above=0)


@dataclass(frozen=True)
class Schedule:
    """By committed steps: up over `warm_up_steps`, then down to `final` of the learning rate at
    `training.total_steps`."""

    kind: Literal["cosine", "linear", "constant"] = "constant"
    warm_up_steps: int = bounded(0, least=0)
    final: float = bounded(0.1, least=0)


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (Hu et al., arXiv 2106.09685). `targets`: last names of linear layers."""

    rank: int = bounded(16, least=1)
    alpha: float = bounded(32.0, above=0)
    dropout: float = bounded(0.0, least=0, below=1)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass(frozen=True)
class Recipe:
    """`sizes` and `modes` were merged in before; see load.py."""

    name: str
    model: Model
    data: Data
    training: Training
    optimizer: Optimizer
    about: str = ""
    mode: Literal["pretrain", "finetune", "lora"] = "pretrain"
    schedule: Schedule = field(default_factory=Schedule)
    lora: Lora = field(default_factory=Lora)


def recipe(tree: Mapping[str, Any]) -> Recipe:
    """Raises RecipeError at the first mistake."""
    built: Recipe = _build(Recipe, tree, "")
    _check(built)
    return built


def _check(recipe: Recipe) -> None:
    """What no field alone can tell."""
    model, data, training = recipe.model, recipe.data, recipe.training
    if (model.llama is None) == (model.gpt_oss is None):
        raise RecipeError("model: must have exactly one of llama and gpt_oss; leave the other out")
    shape = model.shape
    if shape.num_attention_heads % shape.num_key_value_heads:
        raise RecipeError(
            f"model: num_key_value_heads must divide num_attention_heads (got "
            f"{shape.num_key_value_heads} and {shape.num_attention_heads})"
        )
    if model.llama and model.llama.hidden_size % model.llama.num_attention_heads:
        raise RecipeError(
            f"model.llama: num_attention_heads must divide hidden_size (got "
            f"{model.llama.num_attention_heads} and {model.llama.hidden_size})"
        )
    if model.gpt_oss and model.gpt_oss.num_experts_per_tok > model.gpt_oss.num_local_experts:
        raise RecipeError(
            f"model.gpt_oss: num_experts_per_tok must be at most num_local_experts (got "
            f"{model.gpt_oss.num_experts_per_tok} and {model.gpt_oss.num_local_experts})"
        )
    if data.length > shape.max_position_embeddings:
        raise RecipeError(
            f"data.length: must be at most the model's max_position_embeddings, "
            f"{shape.max_position_embeddings} (got {data.length})"
        )
    if training.micro_batch > training.global_batch:
        raise RecipeError(
            f"training.micro_batch: must be at most training.global_batch, "
            f"{training.global_batch} (got {training.micro_batch})"
        )
    if recipe.schedule.kind != "constant" and training.total_steps is None:
        raise RecipeError(
            f"training.total_steps: must be given for schedule.kind {recipe.schedule.kind}; "
            f"give it, or take schedule.kind constant"
        )
    if recipe.mode == "lora" and not recipe.lora.targets:
        raise RecipeError("lora.targets: must name at least one linear layer, such as q_proj")


def suggest(name: object, known: list[str]) -> str:
    """The end of a sentence about a name that isn't known."""
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"


def _build(kind: Any, tree: Any, path: str) -> Any:
    if not isinstance(tree, Mapping):
        raise RecipeError(f"{path or 'recipe'}: must be a mapping of keys (got {tree!r})")
    hints, known = get_type_hints(kind), {each.name: each for each in fields(kind)}
    prefix = f"{path}." if path else ""
    for name in tree:
        if name not in known:
            raise RecipeError(f"{prefix}{name}: unknown key; {suggest(name, list(known))}")
    values = {}
    for name, each in known.items():
        if name in tree:
            values[name] = _convert(hints[name], tree[name], f"{prefix}{name}")
            _bound(each.metadata, values[name], f"{prefix}{name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise RecipeError(f"{prefix}{name}: is missing; it has no default, give it")
    return kind(**values)


def _convert(kind: Any, value: Any, path: str) -> Any:
    """The value as `kind`, or RecipeError. Nothing is guessed but numbers: YAML 1.1 reads 3e-4 as
    a text."""
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if is_dataclass(kind):
        return _build(kind, value, path)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            known = ", ".join(get_args(kind))
            raise RecipeError(f"{path}: must be one of {known} (got {value!r})")
        return value
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise RecipeError(f"{path}: must be a list of names, such as [a, b] (got {value!r})")
        return tuple(value)
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    what = {
        int: "a whole number", float: "a finite number", bool: "true or false", str: "a text",
    }[kind]  # fmt: skip
    raise RecipeError(f"{path}: must be {what} (got {value!r})")


def _bound(bounds: Mapping[str, Any], value: Any, path: str) -> None:
    least, below, above = bounds.get("least"), bounds.get("below"), bounds.get("above")
    if value is None:
        return
    if least is not None and value < least:
        raise RecipeError(f"{path}: must be at least {least} (got {value!r})")
    if below is not None and value >= below:
        raise RecipeError(f"{path}: must be less than {below} (got {value!r})")
    if above is not None and value <= above:
        raise RecipeError(f"{path}: must be more than {above} (got {value!r})")
