"""The rewrite rules: each fires as often as it should, ONNX Runtime makes of it what it is for, and no number moves."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from torch import Tensor, nn

import export.onnx_export
from export.capture import capture
from export.contract import ATTENTION_MASK, INPUT_IDS, Limits
from export.node_names import all_nodes
from export.onnx_export import export_onnx
from export.proof.cases import Ids, build_grid
from export.rewrite import rewrite
from export.rewrite.attention import FAINT
from export.rewrite.row_groups import GROUPS
from models.attention.sdpa import SDPAttention
from models.config import EncoderConfig
from models.heads import TextClassifier, TokenTagger
from models.masks import broadcast_keep, open_empty_rows

LIMITS = Limits(max_length=19, vocab_size=40)


def classifier(num_layers: int, *, attention: str = "sdpa", activation: str = "gelu", head: str = "mlp") -> Any:
    return TextClassifier(encoder(num_layers, attention, activation), pooling="mean_max", head=head, num_labels=5)


def tagger(num_layers: int) -> nn.Module:
    return TokenTagger(encoder(num_layers, "sdpa", "gelu"), head="linear", num_labels=5)


def encoder(num_layers: int, attention: str, activation: str) -> EncoderConfig:
    return EncoderConfig(
        **{"vocab_size": 40, "max_len": 19, "dim": 24, "num_heads": 3, "hidden_dim": 40, "num_layers": num_layers},
        attention=attention,
        activation=activation,
    )


# The model, and how often it has attention in one operator, Linears, and GELUs between two of them.
MODELS = {
    "two-layers": (classifier(2), 2, 4 * 2 + 2, 2 + 1),
    "three-layers-linear-head": (classifier(3, head="linear"), 3, 4 * 3 + 1, 3),
    "relu": (classifier(2, activation="relu"), 2, 4 * 2 + 2, 0),
    "attention-written-out": (classifier(2, attention="full"), 0, 4 * 2 + 2, 2 + 1),
    "tagger": (tagger(1), 1, 4 + 1, 1),
}


@pytest.fixture(scope="module", params=MODELS)
def exported(request: pytest.FixtureRequest) -> tuple[str, bytes, bytes, dict[str, int]]:
    """A model's name, its file without the rules and with them, and how often each fired."""
    model = MODELS[request.param][0].eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    fired: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own; its tests say which
        patch.setattr(export.onnx_export, "rewrite", lambda *_: None)
        plain = export_onnx(capture(model, LIMITS), {})
        patch.setattr(export.onnx_export, "rewrite", lambda graph, rules: fired.update(rewrite(graph, rules)))
        rewritten = export_onnx(capture(model, LIMITS), {})
    return request.param, plain, rewritten, fired


def test_each_rule_fires_as_often_as_it_should(exported: tuple[str, bytes, bytes, dict[str, int]]) -> None:
    name, _, _, fired = exported
    model, attentions, linears, _ = MODELS[name]
    layers = len(model.encoder.blocks)
    in_head = linears - 4 * layers - 1
    assert fired == {
        # Linears of queries, keys and values are attention's.
        **{"attention": attentions, "linear": linears - attentions, "uneven": attentions},
        # Two sums, two norms and an activation a layer: the first norm is before all Linears, the last after them.
        "leading axes": 5 * layers + in_head,
        # Before the queries of each layer but the first, before the Linear after attention, and the two after a norm
        # and an activation; in the head its last, and what stands right behind the last norm.
        "no squeeze": (layers - 1) + attentions + 2 * layers + in_head + isinstance(model, TokenTagger),
    }


def test_onnxruntime_makes_of_it_what_it_is_for(
    exported: tuple[str, bytes, bytes, dict[str, int]], tmp_path: Path
) -> None:
    name, _, rewritten, _ = exported
    _, attentions, linears, gelus = MODELS[name]
    got = Counter(node.op_type for node in all_nodes(optimised(rewritten, tmp_path / "optimised.onnx").graph))
    written_out = attentions == 0
    assert got["Attention"] == attentions * (1 + GROUPS)
    assert got["BiasGelu"] == gelus
    assert got["Gemm"] == got["FusedGemm"] == got["SkipLayerNormalization"] == got["IsNaN"] == 0
    if not written_out:
        assert got["MatMul"] == linears + 2 * attentions
        # What is left turns the two answers of NonZero, and gives two kinds of groups where rows are even.
        assert (got["Split"], got["Transpose"]) == (2, 2)


def test_no_number_moves_beyond_rounding(exported: tuple[str, bytes, bytes, dict[str, int]]) -> None:
    _, plain, rewritten, _ = exported
    before, after = session(plain), session(rewritten)
    for case in build_grid(LIMITS)[::7]:
        wanted = run(before, case.input_ids, case.attention_mask)
        # Two orders of one sum, of logits near 10: 4e-6 was seen.
        np.testing.assert_allclose(run(after, case.input_ids, case.attention_mask), wanted, rtol=1e-5, atol=1e-5)


def masks_of(model: nn.Module) -> set[int]:
    """Return the element types of the masks that the operator of each layer takes."""
    with torch.no_grad():
        for parameter in model.parameters():
            # The exporter drops a bias of zeros, and the rule looks for a Linear with one.
            parameter += 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = onnx.load_from_string(export_onnx(capture(model.eval().requires_grad_(False), LIMITS), {}))
    inferred = onnx.shape_inference.infer_shapes(written, data_prop=True).graph
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.value_info}
    return {types[node.input[3]] for node in all_nodes(inferred) if node.op_type == "Attention" and node.input[3:]}


def test_hidden_keys_are_faint_where_each_repeats_one_that_is_seen() -> None:
    assert masks_of(tagger(2)) == {onnx.TensorProto.FLOAT}
    # Keys after a query are tokens of their own, and nothing bounds their scores.
    causal = TokenTagger(replace(encoder(2, "sdpa", "gelu"), causal=True), head="linear", num_labels=5)
    assert masks_of(causal) == {onnx.TensorProto.BOOL}


# Weights spread over the keys, and scores of thousands, where softmax is one key.
@pytest.mark.parametrize("size", [0.3, 30.0])
def test_a_hidden_key_weighs_nothing(size: float) -> None:
    model = classifier(1)
    qkv = model.encoder.blocks[0].attention.qkv
    with torch.no_grad():
        qkv.weight.normal_(generator=torch.Generator().manual_seed(1)).mul_(size)
        # The exporter drops a bias of zeros, and the rule looks for a Linear with one.
        qkv.bias.fill_(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = export_onnx(capture(model.eval().requires_grad_(False), LIMITS), {})
    stored = onnx.load_from_string(data).graph.initializer
    assert FAINT in [numpy_helper.to_array(tensor).tolist() for tensor in stored]
    ids = torch.randint(5, 40, (3, 17), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(17) < torch.tensor([[17], [1], [6]])).long()
    alone = [session_answer(data, ids[row : row + 1, : mask[row].sum()]) for row in range(3)]
    together = run(session(data), ids.numpy(), mask.numpy())
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-6, atol=1e-6)


def session_answer(data: bytes, ids: Tensor) -> np.ndarray:
    return run(session(data), ids.numpy(), np.ones(ids.shape, np.int64))


class Scaled(SDPAttention):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        mask = broadcast_keep(keep, False, q, k)
        assert mask is not None
        opened, empty = open_empty_rows(mask)
        opened = opened.expand(q.size(0), 1, q.size(2), k.size(2))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=opened, scale=0.1).masked_fill(empty, 0.0)


def test_attention_with_a_scale_of_its_own_is_left_as_it_is() -> None:
    model = classifier(1)
    model.encoder.blocks[0].attention.attend = Scaled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = onnx.load_from_string(export_onnx(capture(model.eval().requires_grad_(False), LIMITS), {}))
    (attention,) = (node for node in written.graph.node if node.op_type == "Attention")
    (scale,) = (attribute.f for attribute in attention.attribute if attribute.name == "scale")
    assert scale == pytest.approx(0.1)


def session(model: bytes, options: ort.SessionOptions | None = None) -> ort.InferenceSession:
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(model: ort.InferenceSession, ids: Ids, mask: Ids) -> np.ndarray:
    (logits,) = model.run(None, {INPUT_IDS: ids, ATTENTION_MASK: mask})
    return logits


def optimised(model: bytes, file: Path) -> onnx.ModelProto:
    options = ort.SessionOptions()
    # The file may hold what suits this machine alone, which is what runs here.
    options.log_severity_level = 3
    options.optimized_model_filepath = str(file)
    session(model, options)
    return onnx.load(file)
