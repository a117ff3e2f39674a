"""Models of recipes: transformers' modules from a recipe's configuration, random or from a folder.

The model's own module is imported, not transformers' front door, which imports much more. Nothing
is ever downloaded.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trainer_runtime.recipes.schema import Model, RecipeError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_YARN_FROM = 4096  # tokens that gpt-oss was made for before its context was stretched


def build(model: Model, dtype: str, *, weights: bool = True) -> torch.nn.Module:
    """A causal language model on torch's default device: `model(input_ids=[n, length]).logits` is
    [n, length, vocabulary]. Random by torch's generator, unless `model.weights` names a folder and
    `weights` is true. Raises RecipeError if the folder isn't of this model."""
    kind, config = _configured(model)
    if model.weights is not None and weights:
        built = _from_folder(kind, config, Path(model.weights), DTYPES[dtype])
    else:
        # Made in its dtype, not converted: that would round the rotary frequencies too.
        built = kind._from_config(config, dtype=DTYPES[dtype])
    built.train()
    return built


def _configured(model: Model) -> tuple[Any, Any]:
    values = asdict(model.shape)
    # No special tokens: a padding token's embedding would be left out of training.
    values |= {"use_cache": False, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    if model.llama is not None:
        from transformers.models.llama.configuration_llama import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaForCausalLM

        theta = values.pop("rope_theta")
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
        return LlamaForCausalLM, LlamaConfig(**values, attn_implementation="sdpa")
    from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssForCausalLM

    if model.gpt_oss and model.gpt_oss.max_position_embeddings <= _YARN_FROM:
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": 150000.0}
    # Attention sinks have no SDPA kernel.
    return GptOssForCausalLM, GptOssConfig(**values, attn_implementation="eager")


def _from_folder(kind: Any, config: Any, folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    if not folder.is_dir():
        raise RecipeError(f"model.weights: must be a local folder of safetensors (got {folder})")
    try:
        built, report = kind.from_pretrained(
            folder, config=config, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise RecipeError(f"model.weights: {folder} can't be loaded: {error}") from error
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        odd = sorted({str(each) for each in report[what]} - tied)
        if odd:
            raise RecipeError(
                f"model.weights: {folder} isn't of this model: {what.replace('_', ' ')} "
                f"{', '.join(odd[:3])} ({len(odd)} in all); a quantized model must be "
                f"dequantized and saved first"
            )
    return built
