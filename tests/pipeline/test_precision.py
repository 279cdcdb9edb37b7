"""bfloat16 rounds the matrix products of a step, and nothing that lasts: not weights, moments, loss or validation."""

import dataclasses

import pytest
import torch

from models.config import EncoderConfig
from models.heads import TextClassifier, TokenTagger
from pipeline.checkpoint import training_identity
from pipeline.config import PRECISIONS, RunConfig, TrainingConfig
from pipeline.precision import forward_in
from pipeline.training import make_optimizer
from tests.pipeline.test_checkpoint import CONFIG, CrashError, train

IDS = torch.tensor([[2, 7, 9, 3], [2, 8, 3, 0]])
MASK = (IDS != 0).long()


def made_model(attention="sdpa", kind=TextClassifier):
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=20, max_len=12, dim=16, num_layers=2, num_heads=2, hidden_dim=32, dropout=0.0, attention=attention
    )
    return kind(encoder, num_labels=3) if kind is TokenTagger else kind(encoder, pooling="mean_max", num_labels=3)


def seen_dtypes(model, kind):
    """Run a model once in bfloat16; return the types that modules of a kind gave out."""
    seen = []
    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(lambda _, __, out: seen.append(out.dtype))
    forward_in("bfloat16", model)(IDS, MASK).sum().backward()
    return seen


def test_float32_is_the_model_itself():
    model = made_model()
    assert forward_in("float32", model) is model


@pytest.mark.parametrize("kind", [TextClassifier, TokenTagger])
def test_matrix_products_are_bfloat16_and_all_that_lasts_is_float32(kind):
    model = made_model(kind=kind)
    names = list(model.state_dict())
    seen = seen_dtypes(model, torch.nn.Linear)
    # Four in each of two layers, and the head.
    assert seen == [torch.bfloat16] * 9
    logits = forward_in("bfloat16", model)(IDS, MASK)
    assert logits.dtype == torch.float32
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("attention", ["full", "sdpa"])
def test_attention_keeps_float32_on_the_cpu(attention):
    model = made_model(attention)
    kind = type(model.encoder.blocks[0].attention.attend)
    assert seen_dtypes(model, kind) == [torch.float32] * 2


def test_rounding_is_all_that_differs():
    model = made_model()
    exact = model(IDS, MASK)
    rounded = forward_in("bfloat16", model)(IDS, MASK)
    assert not torch.equal(rounded, exact)
    # bfloat16 has 8 bits; two layers and a head add a few of its units.
    torch.testing.assert_close(rounded, exact, atol=2**-5, rtol=2**-5)
    # Outside a step the same model is float32 to the bit.
    assert torch.equal(model(IDS, MASK), exact)


def test_bfloat16_goes_on_bit_for_bit_and_is_another_training(tmp_path):
    config = dataclasses.replace(CONFIG, precision="bfloat16")
    weights = {}
    for name in ("unbroken", "float32", "broken"):
        (tmp_path / name).mkdir()
    _, weights["unbroken"] = train(tmp_path / "unbroken", config=config)
    _, weights["float32"] = train(tmp_path / "float32", config=CONFIG)
    with pytest.raises(CrashError):
        train(tmp_path / "broken", config=config, loss=18)
    _, weights["broken"] = train(tmp_path / "broken", config=config)
    assert weights["broken"] == weights["unbroken"] != weights["float32"]


def test_identity_names_what_rounds_bfloat16():
    def names(precision):
        config = RunConfig(name="a", training=TrainingConfig(precision=precision))
        return training_identity(config, data_sha256="0")

    float32, bfloat16 = map(names, PRECISIONS)
    assert "the CPU's unit for bfloat16" not in float32
    assert bfloat16["the CPU's unit for bfloat16"] in ("AMX", "AVX-512", "none")
    assert (float32["training.precision"], bfloat16["training.precision"]) == PRECISIONS


def test_optimiser_is_fused_and_a_fresh_state_says_so():
    model = made_model()
    optimizer = make_optimizer(model, TrainingConfig(weight_decay=0.05))
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]
    model(IDS, MASK).sum().backward()
    optimizer.step()
    # The fused kernel counts steps in a tensor, which a state on the disk can hold.
    assert all(state["step"].dtype == torch.float32 for state in optimizer.state.values())
    assert {float(state["step"]) for state in optimizer.state.values()} == {1.0}
