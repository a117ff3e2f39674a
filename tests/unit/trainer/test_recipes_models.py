"""Models of recipes: published sizes, memory, adapters, weights from a folder, optimizer, schedule.

The big ones are made of meta tensors, which hold shapes and no values.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer_runtime.recipes import estimate, run
from trainer_runtime.recipes.load import load
from trainer_runtime.recipes.lora import LoraLinear, SameBase, adapt, merge
from trainer_runtime.recipes.models import build
from trainer_runtime.recipes.schema import Lora, Recipe, RecipeError, Schedule
from trainer_runtime.recipes.training import (
    checkpoint_layers,
    loss_of,
    optimizer,
    rate_factor,
    samples_of,
)

GIB = 2**30


def small(name: str, *settings: str) -> Recipe:
    """A tiny recipe with two layers."""
    family = "llama" if name.startswith("llama") else "gpt_oss"
    return load(name, [f"model.{family}.num_hidden_layers=2", "data.length=32", *settings]).recipe


def tokens(samples: int = 2, length: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(0, 256, (samples, length + 1), generator=generator)


def on_meta(name: str) -> torch.nn.Module:
    recipe = load(name).recipe
    with torch.device("meta"):
        return build(recipe.model, recipe.training.dtype)


@pytest.mark.parametrize(
    ("name", "count", "published", "shapes"),
    [
        # Model cards: huggingface.co/meta-llama/Meta-Llama-3-8B and -70B, "8.03B" and "70.6B".
        ("llama3-8b", 8_030_261_248, "8.03", {
            "model.embed_tokens.weight": (128256, 4096), "lm_head.weight": (128256, 4096),
            "model.layers.31.self_attn.k_proj.weight": (1024, 4096),
            "model.layers.0.mlp.down_proj.weight": (4096, 14336)}),
        ("llama3-70b", 70_553_706_496, "70.55", {
            "model.layers.79.self_attn.q_proj.weight": (8192, 8192),
            "model.layers.79.self_attn.v_proj.weight": (1024, 8192),
            "model.layers.0.mlp.gate_proj.weight": (28672, 8192)}),
        # gpt-oss model card (arXiv 2508.10925), table 1: 20.91B and 116.83B.
        ("gpt-oss-20b", 20_914_757_184, "20.91", {
            "model.embed_tokens.weight": (201088, 2880),
            "model.layers.23.self_attn.q_proj.weight": (4096, 2880),
            "model.layers.23.self_attn.sinks": (64,),
            "model.layers.0.mlp.experts.gate_up_proj": (32, 2880, 5760)}),
        ("gpt-oss-120b", 116_829_156_672, "116.83", {
            "model.layers.35.mlp.router.weight": (128, 2880),
            "model.layers.35.mlp.experts.down_proj": (128, 2880, 2880)}),
    ],
)  # fmt: skip
def test_published_sizes(
    name: str, count: int, published: str, shapes: dict[str, tuple[int, ...]]
) -> None:
    parameters = dict(on_meta(name).named_parameters())
    assert sum(each.numel() for each in parameters.values()) == count
    assert f"{count / 1e9:.2f}" == published + "0" * (len(f"{count / 1e9:.2f}") - len(published))
    assert {shape: tuple(parameters[shape].shape) for shape in shapes} == shapes
    assert {each.dtype for each in parameters.values()} == {torch.bfloat16}


def test_gpt_oss_by_part() -> None:
    """The model card's table 1: 19.12B in experts, 0.64B in attention, 1.16B in embeddings."""
    parts = {"mlp": 0, "attn": 0, "embed": 0}
    for name, each in on_meta("gpt-oss-20b").named_parameters():
        for part, marks in (("mlp", ".mlp."), ("attn", ".self_attn.")):
            parts[part] += each.numel() if marks in name else 0
        parts["embed"] += each.numel() if "embed_tokens" in name or "lm_head" in name else 0
    assert parts == {"mlp": 19_119_145_728, "attn": 637_203_456, "embed": 1_158_266_880}


def test_memory_by_hand() -> None:
    """Llama 3 8B in bfloat16, one sample of 8192 tokens, layers computed again."""
    got = estimate.memory(load("llama3-8b").recipe, replicas=8)
    count = 8_030_261_248
    assert (got.parameter_count, got.trainable_count) == (count, count)
    assert (got.parameters, got.gradients, got.optimizer) == (2 * count, 2 * count, 4 * count)
    assert (got.ordered, got.sharded(8).optimizer) == (0, count // 2)
    assert got.total == 8 * count + got.activations
    assert got.sharded(8).total == got.total - 4 * count + count // 2
    # Inputs of 32 layers; logits' log-probabilities and gradient in float32, gradient in bfloat16.
    by_hand = 32 * 8192 * 4096 * 2 + 8192 * 128256 * (4 + 4 + 2)
    # One layer: two norms (input in float32, its product, its output), queries, attention's
    # output, keys and values, log-sum-exp, and four times the width of the feed-forward part.
    width, inner, keys = 4096, 14336, 1024
    layer = 2 * (4 + 2 + 2) * width + 2 * 2 * width + 2 * 2 * keys + 4 * 32 + 4 * 2 * inner
    by_hand += 8192 * layer
    assert abs(got.activations - by_hand) < 0.03 * by_hand


@pytest.mark.parametrize(
    ("settings", "ordered"),
    [(["training.exact=true"], 8 // 4 + 1), (["training.exact=true", "training.micro_batch=3"], 2)],
)
def test_memory_of_exact_training(settings: list[str], ordered: int) -> None:
    got = estimate.memory(small("llama-tiny", *settings), replicas=4)
    assert got.ordered == ordered * got.gradients > 0


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-oss-tiny"])
@pytest.mark.parametrize("mode", ["pretrain", "lora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_are_those_of_a_real_step(name: str, mode: str, dtype: str) -> None:
    """Three layers, since the estimate has looked at one and two; as many tokens as features, so
    that no activation may be taken for a mask."""
    width = load(name).recipe.model.shape.hidden_size
    recipe = small(name, f"mode={mode}", f"training.dtype={dtype}", f"data.length={width}")
    family = "llama" if recipe.model.llama else "gpt_oss"
    shape = replace(recipe.model.shape, num_hidden_layers=3)
    recipe = replace(recipe, model=replace(recipe.model, **{family: shape}))
    model = build(recipe.model, dtype)
    if mode == "lora":
        adapt(model, recipe.lora)
    loss, batch = loss_of(model, recipe), tokens(recipe.training.micro_batch, width)
    real = estimate.kept_by_autograd(lambda: loss(batch), list(model.parameters()))
    real += batch[:, 1:].numel() * 256 * (4 if dtype == "float32" else 6)
    wrong = abs(estimate.activations(recipe) - real) / real
    assert wrong == 0 if name == "llama-tiny" else wrong < 0.08


def test_checkpointing_keeps_less() -> None:
    less = estimate.activations(load("llama3-8b").recipe)
    most = estimate.activations(load("llama3-8b", ["training.gradient_checkpointing=false"]).recipe)
    assert 4 * less < most < 6 * less


def test_table_and_limit(capsys: pytest.CaptureFixture[str]) -> None:
    run.main(["llama3-8b", "--estimate", "--max-replicas", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "llama3-8b, pretrain: 8,030,261,248 parameters, 8,030,261,248 trained, bfloat16"
    )
    assert lines[4].split() == ["optimizer", "29.915", "3.739"]
    with pytest.raises(SystemExit) as refused:
        run.main(["llama3-8b", "--check-memory", "70"])
    assert str(refused.value.code).startswith(
        "llama3-8b: memory: a replica needs 73.5 GiB, more than 70; try a smaller "
    )
    run.main(["llama3-8b", "--estimate", "--check-memory", "74"])


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-oss-tiny"])
def test_only_adapters_change_and_merging_changes_nothing(name: str) -> None:
    recipe = small(name, "mode=lora")
    torch.manual_seed(0)
    model = build(recipe.model, "float32")
    plain = model(input_ids=tokens()).logits
    adapters = adapt(model, recipe.lora)
    assert torch.equal(model(input_ids=tokens()).logits, plain)  # they begin with nothing
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    adam, loss = optimizer(model, recipe.optimizer), loss_of(model, recipe)
    for _ in range(3):
        adam.zero_grad()
        loss(tokens()).backward()
        adam.step()
    changed = {n for n, each in model.named_parameters() if not torch.equal(each, before[n])}
    assert changed == {n for n in before if n.endswith((".up", ".down"))}
    assert len(changed) == 2 * 2 * 4 == len(adapters.state_dict())
    unmerged = model(input_ids=tokens()).logits
    assert (unmerged - plain).abs().max() > 1e-3
    merge(model)
    assert not any(isinstance(each, LoraLinear) for each in model.modules())
    assert (model(input_ids=tokens()).logits - unmerged).abs().max() < 1e-5


def test_adapters_state_is_the_models() -> None:
    """Loaded into the adapters, it is in the model; it holds nothing of the base."""
    recipe = small("llama-tiny", "mode=lora")
    one, other = (build(recipe.model, "float32") for _ in range(2))
    mine, theirs = adapt(one, recipe.lora), adapt(other, recipe.lora)
    with torch.no_grad():
        for each in theirs.parameters():
            each.add_(1.0)
    mine.load_state_dict(theirs.state_dict())
    assert sum(each.numel() for each in mine.state_dict().values()) == 2 * 4 * 2 * 160 * 8
    layer, its = (m.get_submodule("model.layers.1.self_attn.q_proj") for m in (one, other))
    assert torch.equal(layer.up, its.up)
    assert not torch.equal(layer.base.weight, its.base.weight)


def test_adapters_of_a_bfloat16_model_are_float32_and_drop_out_in_training_only() -> None:
    model = build(small("llama-tiny").model, "bfloat16")
    adapters = adapt(model, Lora(rank=2, dropout=0.5))
    assert {each.dtype for each in adapters.parameters()} == {torch.float32}
    with torch.no_grad():
        for each in adapters.parameters():
            each.add_(0.1)
    out = [model(input_ids=tokens()).logits for _ in range(2)]
    assert out[0].dtype == torch.bfloat16
    assert not torch.equal(*out)
    model.eval()
    assert torch.equal(*(model(input_ids=tokens()).logits for _ in range(2)))


@pytest.mark.parametrize(
    ("name", "target", "want"),
    [
        ("llama-tiny", "q_porj", "did you mean q_proj?"),
        ("gpt-oss-tiny", "experts", "known: k_proj, lm_head, o_proj, q_proj, v_proj"),
    ],
)
def test_targets_refused(name: str, target: str, want: str) -> None:
    model = build(small(name).model, "float32")
    with pytest.raises(RecipeError) as refused:
        adapt(model, Lora(targets=(target,)))
    assert str(refused.value) == (
        f"lora.targets: {target!r} is no linear layer of this model; {want}"
    )


def test_a_different_base_is_refused() -> None:
    recipe = small("llama-tiny", "mode=lora")
    bases = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = build(recipe.model, "bfloat16")
        adapters = adapt(model, recipe.lora)
        with torch.no_grad():
            next(adapters.parameters()).add_(seed + len(bases))  # trained: no part of the base
        bases.append(SameBase(model))
    bases[0].load_state_dict(bases[1].state_dict())
    with pytest.raises(RecipeError, match="model: the frozen weights differ"):
        bases[0].load_state_dict(bases[2].state_dict())


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-oss-tiny"])
def test_weights_from_a_folder(name: str, tmp_path: Path) -> None:
    recipe = small(name)
    torch.manual_seed(1)
    saved = build(recipe.model, "float32")
    saved.save_pretrained(tmp_path)
    torch.manual_seed(2)
    loaded = build(replace(recipe.model, weights=str(tmp_path)), "float32")
    assert loaded.training
    for (key, each), other in zip(saved.named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(each, other), key
    family = "llama" if recipe.model.llama else "gpt_oss"
    deeper = replace(recipe.model.shape, num_hidden_layers=3)
    wrong = replace(recipe.model, weights=str(tmp_path), **{family: deeper})
    with pytest.raises(RecipeError, match=r"isn't of this model: missing keys model\.layers\.2"):
        build(wrong, "float32")


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    recipe = small("llama-tiny")
    for folder, want in (("none", "must be a local folder"), (".", "can't be loaded")):
        with pytest.raises(RecipeError, match=want):
            build(replace(recipe.model, weights=str(tmp_path / folder)), "float32")


def test_rotary_frequencies_stay_float32() -> None:
    model = build(small("llama-tiny").model, "bfloat16")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert {each.dtype for each in model.parameters()} == {torch.bfloat16}


def test_what_decays() -> None:
    model = build(small("gpt-oss-tiny").model, "float32")
    adam = optimizer(model, small("gpt-oss-tiny", "optimizer.weight_decay=0.2").optimizer)
    names = {id(each): name for name, each in model.named_parameters()}
    decays, rest = ({names[id(p)] for p in group["params"]} for group in adam.param_groups)
    assert [group["weight_decay"] for group in adam.param_groups] == [0.2, 0.0]
    assert decays | rest == set(names.values())
    assert all(name.endswith(("bias", "sinks", "norm.weight")) for name in rest - {""})
    assert "model.layers.0.mlp.experts.down_proj_bias" in rest
    assert "model.layers.0.mlp.experts.down_proj" in decays


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("constant", [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]),
        ("linear", [0.25, 0.5, 0.75, 1, 1, 0.6, 0.2, 0.2]),
        ("cosine", [0.25, 0.5, 0.75, 1, 1, 0.6, 0.2, 0.2]),
    ],
)
def test_schedule(kind: str, want: list[float]) -> None:
    schedule = Schedule(kind=kind, warm_up_steps=4, final=0.2)  # type: ignore[arg-type]
    got = [rate_factor(step, schedule, 12) for step in (0, 1, 2, 3, 4, 8, 12, 99)]
    assert got == pytest.approx(want)


def test_schedule_by_cosine_is_flat_at_its_ends() -> None:
    schedule = Schedule(kind="cosine", final=0.0)
    assert rate_factor(25, schedule, 100) == pytest.approx((1 + 2**-0.5) / 2)


@pytest.mark.parametrize("name", ["llama-tiny", "gpt-oss-tiny"])
def test_checkpointed_gradients_are_the_same(name: str) -> None:
    recipe = small(name)
    torch.manual_seed(0)
    model = build(recipe.model, "float32")
    loss = loss_of(model, recipe)
    losses, gradients = [], []
    for again in (False, True):
        if again:
            checkpoint_layers(model)
        model.zero_grad()
        value = loss(tokens())
        value.backward()
        losses.append(value.item())
        gradients.append([each.grad.clone() for each in model.parameters()])
    assert losses[0] == losses[1]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_loss_is_a_sum_of_the_samples_means() -> None:
    recipe = small("llama-tiny")
    model = build(recipe.model, "float32")
    loss, batch = loss_of(model, recipe), tokens(3)
    alone = [loss(batch[i : i + 1]).item() for i in range(3)]
    assert loss(batch).item() == pytest.approx(sum(alone), rel=1e-5)
    assert alone[0] == pytest.approx(np.log(256), abs=0.5)


def test_data_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^data: must have one of path, "):
        samples_of(load("llama3-8b").recipe)
    with pytest.raises(RecipeError, match=r"^data: must have one of path, "):
        samples_of(small("llama-tiny", f"data.path={tmp_path}"))


def test_data_from_shards(tmp_path: Path) -> None:
    from trainer_runtime.data.folder import FolderWriter

    with FolderWriter(tmp_path / "d", tokenizer="bytes", vocabulary=300) as writer:
        writer.add(np.arange(65) + 200)
    path = f"data.path={tmp_path / 'd'}"
    with pytest.raises(RecipeError, match="has a vocabulary of 300, the model's vocab_size is 256"):
        samples_of(small("llama-tiny", path, "data.demo=false"))
    fits = small("llama-tiny", path, "data.demo=false", "model.llama.vocab_size=300")
    samples = samples_of(fits)
    assert len(samples) == 2
    assert samples.batch([1]).tolist() == [list(range(232, 265))]
