"""Train a Llama of 1.3 million parameters on the standard library's source text, elastically.

    python -m trainer_runtime.authority --port 29400 &
    CONCERTINA_AUTHORITY=127.0.0.1:29400 python -m trainer_runtime.examples.tiny_llama

Start more of the second, stop or kill some: the loss goes on. Next-byte prediction; the model is
transformers' LlamaForCausalLM with random weights, so nothing is downloaded. Needs transformers.
"""

from __future__ import annotations

from trainer_runtime.drain import Drain

# First of all: importing torch takes a while, and SIGTERM may come any time.
DRAIN = Drain() if __name__ == "__main__" else None

import argparse  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from trainer_runtime import ElasticTrainer, TrainerOptions  # noqa: E402
from trainer_runtime.examples.corpus import ByteWindows, build, cache_folder  # noqa: E402

VOCABULARY = 256


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    env = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--global-batch", type=int, default=int(env("CONCERTINA_GLOBAL_BATCH", "8"))
    )
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=128, help="bytes in a sample")
    parser.add_argument("--total-steps", type=int, default=_steps(env("CONCERTINA_TOTAL_STEPS")))
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warm-up-steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--exact", action="store_true", help="add gradients in a fixed order")
    parser.add_argument(
        "--step-ms", type=float, default=float(env("CONCERTINA_STEP_MS", "0")),
        help="least time of a step, so that replicas which share cores leave some to others",
    )  # fmt: skip
    parser.add_argument("--checkpoint-dir", type=Path, help="else CONCERTINA_CHECKPOINT_DIR")
    parser.add_argument("--checkpoint-every", type=int, help="steps; else only at the end")
    parser.add_argument("--print-every", type=int, default=10, help="steps between printed losses")
    return parser.parse_args(argv)


def _steps(text: str | None) -> int | None:
    return int(text) if text else None


def build_model(width: int, layers: int, length: int) -> torch.nn.Module:
    # The module itself, not transformers' front door, which imports much more.
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=width * 27 // 10,
        num_hidden_layers=layers, num_attention_heads=width // 32,
        num_key_value_heads=width // 32, max_position_embeddings=length,
        tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return LlamaForCausalLM(config)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    options = TrainerOptions.from_env(
        global_batch=args.global_batch, micro_batch=args.micro_batch, exact=args.exact,
        total_steps=args.total_steps, max_grad_norm=1.0, checkpoint_dir=args.checkpoint_dir,
        checkpoint_every=args.checkpoint_every,
    )  # fmt: skip
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    data = ByteWindows(build(cache_folder()), args.length)
    model = build_model(args.width, args.layers, args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / args.warm_up_steps)
    )

    def load(indices: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(data.batch(indices))

    def loss(batch: torch.Tensor) -> torch.Tensor:
        """The sum over samples of their mean loss a byte."""
        logits = model(input_ids=batch[:, :-1]).logits
        each = functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        )
        return each / args.length

    trainer = ElasticTrainer(
        model, optimizer, load=load, loss=loss, samples=len(data), options=options,
        scheduler=schedule, tokens_per_sample=args.length, drain=DRAIN,
    )  # fmt: skip
    parameters = sum(each.numel() for each in model.parameters())
    trainer.log(f"{parameters / 1e6:.2f} million parameters, {len(data)} samples")
    with trainer:
        began = time.monotonic()
        for done in trainer:
            if done.rank == 0 and done.step % args.print_every == 0:
                trainer.log(f"step {done.step} loss {done.loss:.4f} on {done.world_size} replicas")
            time.sleep(max(0.0, args.step_ms / 1000 - (time.monotonic() - began)))
            began = time.monotonic()


if __name__ == "__main__":
    main()
