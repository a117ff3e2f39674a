"""Parameters worked out from a configuration are those of the model built from it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GptOssConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen3MoeConfig,
)

from trainer_runtime.instruments.flops import counted, shape_of

TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "head_dim": 16,
}  # fmt: skip
SPARSE = {"num_experts_per_tok": 2, "num_local_experts": 8}


@pytest.mark.parametrize(
    ("kind", "more", "active"),
    [
        (LlamaConfig, {}, 1.0),
        (LlamaConfig, {"tie_word_embeddings": True}, 1.0),
        (GptOssConfig, SPARSE, 0.25),
        (MixtralConfig, SPARSE, 0.25),
        (
            Qwen3MoeConfig,
            {"num_experts_per_tok": 2, "num_experts": 8, "moe_intermediate_size": 32,
             "mlp_only_layers": [1]},
            0.25,
        ),
    ],
)  # fmt: skip
def test_as_counted_in_the_model(kind: Any, more: dict[str, Any], active: float) -> None:
    config = kind(**TINY, **more)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert counted(model, active_experts=active) == shape_of(config).parameters
