"""Model FLOPs a token, and how much of the devices' peak a job makes of them (MFU).

The convention is that of PaLM (Chowdhery et al. 2022, appendix B): a token costs 6 N + 12 L H Q T,
forward and backward. N are the parameters that multiply it: of a mixture of experts those it is
routed to, the output projection, but no looked-up embeddings. L layers, H heads of size Q, T tokens
of context; in a layer with a sliding window T is at most the window. The causal mask isn't
discounted and recomputed activations aren't counted, so that figures compare across papers.

    flops = flops_per_token(shape_of(config), sequence_length=8192)
    mfu(tokens_per_s, flops, devices=8, peak=peak_flops(torch.cuda.get_device_name()))

No torch: a configuration is read by its attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Dense bf16, FLOP/s of one device as torch names it, from the makers' data sheets; where those
# print the figure with 2:4 sparsity, half of it. All words of a row must be in the name; the first
# row that fits is taken.
_PEAKS: tuple[tuple[tuple[str, ...], float, str], ...] = (
    # Hopper: 1979 (SXM), 1671 (NVL) and 1513 (PCIe) TFLOPS with sparsity.
    (("h200", "nvl"), 835.5e12, "nvidia.com/en-us/data-center/h200"),
    (("h200",), 989.5e12, "nvidia.com/en-us/data-center/h200"),
    (("gh200",), 989.5e12, "nvidia.com/en-us/data-center/grace-hopper-superchip, as H100 SXM"),
    (("h100", "nvl"), 835.5e12, "nvidia.com/en-us/data-center/h100"),
    (("h100", "pcie"), 756.5e12, "nvidia.com/en-us/data-center/h100"),
    (("h100",), 989.5e12, "nvidia.com/en-us/data-center/h100"),
    (("h800", "pcie"), 756.5e12, "NVIDIA H800 data sheet, as H100 PCIe"),
    (("h800",), 989.5e12, "NVIDIA H800 data sheet, as H100 SXM"),
    # Blackwell: 5 PFLOPS with sparsity in a GB200 superchip's GPU, 4.5 in an HGX B200's.
    (("gb200",), 2500e12, "nvidia.com/en-us/data-center/gb200-nvl72"),
    (("b200",), 2250e12, "nvidia.com/en-us/data-center/hgx"),
    # Ampere and Ada
    (("a100",), 312e12, "nvidia.com/en-us/data-center/a100"),
    (("a800",), 312e12, "NVIDIA A800 data sheet, as A100"),
    (("a40",), 149.7e12, "nvidia.com/en-us/data-center/a40"),
    (("a30",), 165e12, "nvidia.com/en-us/data-center/products/a30-gpu"),
    (("l40s",), 362e12, "nvidia.com/en-us/data-center/l40s"),
    (("l40",), 181e12, "nvidia.com/en-us/data-center/l40"),
    (("l4",), 121e12, "nvidia.com/en-us/data-center/l4"),
    # AMD Instinct; an MI250X shows as two devices of half the card each.
    (("mi325x",), 1307.4e12, "amd.com/en/products/accelerators/instinct/mi300/mi325x"),
    (("mi300x",), 1307.4e12, "amd.com/en/products/accelerators/instinct/mi300/mi300x"),
    (("mi250x",), 191.5e12, "amd.com/en/products/accelerators/instinct/mi200/mi250x"),
)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """`parameters`: those that multiply a token (N). `head_sizes` is H * Q, one number a layer:
    for keys and values of different size, H times their mean. `windows`: each layer's sliding
    window in tokens, None for none."""

    parameters: int
    head_sizes: tuple[float, ...]
    windows: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if self.parameters <= 0:
            raise ValueError(f"parameters: must be above 0 (got {self.parameters})")
        if len(self.windows) != len(self.head_sizes):
            raise ValueError(
                f"windows: must be one a layer, {len(self.head_sizes)} (got {len(self.windows)})"
            )


def flops_per_token(shape: ModelShape, *, sequence_length: int) -> float:
    """Forward and backward. `sequence_length` in tokens; raises ValueError below 1."""
    if sequence_length < 1:
        raise ValueError(f"sequence_length: must be at least 1 (got {sequence_length})")
    contexts = (min(sequence_length, window or sequence_length) for window in shape.windows)
    attention = sum(
        12 * heads * seen for heads, seen in zip(shape.head_sizes, contexts, strict=True)
    )
    return 6.0 * shape.parameters + attention


def mfu(
    tokens_per_s: float | None, flops: float | None, *, devices: int, peak: float | None
) -> float | None:
    """Model FLOPs utilisation, 1.0 being the peak of all devices together: `tokens_per_s` of the
    whole job, `flops` a token, `peak` FLOP/s of one device. None if any of them isn't known."""
    if tokens_per_s is None or not flops or not peak or devices < 1:
        return None
    return tokens_per_s * flops / (devices * peak)


def peak_flops(device_name: str) -> float | None:
    """Published dense bf16 FLOP/s of a device by torch's name for it; None if not known here (a
    CPU and a MIG slice too): a wrong peak would be worse than no MFU."""
    words = device_name.lower().replace("-", " ").replace("_", " ").split()
    if "mig" in words:
        return None
    for wanted, peak, _source in _PEAKS:
        if all(word in words for word in wanted):
            return peak
    return None


def shape_of(config: Any) -> ModelShape:
    """From the configuration of a decoder of the `transformers` library: Llama, Mistral, Qwen,
    Mixtral, gpt-oss and those built alike. Biases and norms multiply nothing and aren't counted.

    Raises ValueError for what it can't be worked out for, such as latent attention; then count by
    `counted` and give a ModelShape."""
    if getattr(config, "kv_lora_rank", None) is not None:
        raise ValueError(
            "kv_lora_rank: latent attention is not known here; make a ModelShape, with counted()"
        )
    need = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    for name in (*need, "intermediate_size"):
        if not isinstance(getattr(config, name, None), int):
            raise ValueError(
                f"{name}: missing in {type(config).__name__}; make a ModelShape, with counted()"
            )
    layers, hidden = config.num_hidden_layers, config.hidden_size
    heads = config.num_attention_heads
    head = getattr(config, "head_dim", None) or hidden // heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    attention = hidden * head * (2 * heads + 2 * groups)
    blocks = sum(_feed_forward(config, layer) for layer in range(layers))
    return ModelShape(
        parameters=layers * attention + blocks + hidden * config.vocab_size,
        head_sizes=(float(heads * head),) * layers,
        windows=tuple(_window(config, layer) for layer in range(layers)),
    )


def _feed_forward(config: Any, layer: int) -> int:
    """Parameters of a layer's gated feed-forward part that multiply a token."""
    hidden = config.hidden_size
    experts = _first(config, "num_local_experts", "num_experts", "n_routed_experts")
    sparse_step = getattr(config, "decoder_sparse_step", None) or 1
    dense = (
        not experts
        or layer in (getattr(config, "mlp_only_layers", None) or ())
        or (layer + 1) % sparse_step != 0
    )
    if dense:
        return 3 * hidden * config.intermediate_size
    width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    shared = getattr(config, "shared_expert_intermediate_size", None) or 0
    gate = hidden if shared else 0
    routed = config.num_experts_per_tok * 3 * hidden * width
    return routed + hidden * experts + 3 * hidden * shared + gate


def _window(config: Any, layer: int) -> int | None:
    window = getattr(config, "sliding_window", None)
    if not window or getattr(config, "use_sliding_window", True) is False:
        return None
    kinds: Sequence[str] | None = getattr(config, "layer_types", None)
    return window if kinds is None or kinds[layer] == "sliding_attention" else None


def _first(config: Any, *names: str) -> int | None:
    return next((found for name in names if (found := getattr(config, name, None))), None)


def counted(model: Any, *, active_experts: float = 1.0) -> int:
    """N of a torch module: its weights of two dimensions and more, without looked-up embeddings
    (one that is tied to an output projection counts once). Of parameters whose name has a part
    `experts` only `active_experts`, experts a token / experts, counts. Works on meta tensors."""
    looked_up = {
        id(module.weight) for module in model.modules() if type(module).__name__ == "Embedding"
    }
    projected = {
        id(module.weight) for module in model.modules() if type(module).__name__ == "Linear"
    }
    total = 0.0
    for name, parameter in model.named_parameters():
        multiplies = parameter.dim() >= 2 and not name.endswith("bias")  # experts stack theirs
        if multiplies and id(parameter) not in looked_up - projected:
            total += parameter.numel() * (active_experts if "experts" in name.split(".") else 1.0)
    return round(total)
