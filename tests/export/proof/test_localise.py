"""The first guilty layer: a fault planted in layer k of a shipped file is found there, and nothing in good files."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

from export.capture import capture
from export.contract import LOGITS, TOKEN_CLASSIFICATION, Limits
from export.node_names import all_nodes
from export.onnx_export import ONNX_FILE
from export.proof.cases import Case
from export.proof.localise import Culprit, find_culprit
from export.proof.localise.eager_values import trace_eager
from export.proof.localise.points import FORWARD, GIVES, LOGITS_POINT, TAKES, Point
from export.proof.localise.torchscript_values import torchscript_points
from export.proof.runtimes import ONNX_FP16_FILE, PT2, open_runtime
from export.pt2 import PT2_FILE, export_pt2
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from models.block import PreNormBlock
from models.packing import Packing
from tests.export.proof.precisions import half_file
from tests.export.proof.subjects import build_files, eager_model, metadata_of
from tests.sabotage import tools

Files = dict[str, bytes]
LAYERS = 3
OFF, ALL, TORCHSCRIPT = "onnxruntime-cpu-off", "onnxruntime-cpu-all", "torchscript"


def case_of(batch: int = 3, length: int = 7) -> Case:
    rng = np.random.default_rng(0)
    mask = np.ones((batch, length), np.int64)
    mask[1, 2:4] = mask[2, 5:] = 0
    return Case(name="planted", input_ids=rng.integers(0, 40, mask.shape), attention_mask=mask)


@pytest.fixture(scope="module")
def deep() -> Files:
    return build_files(num_layers=LAYERS)


@pytest.fixture(scope="module")
def deep_tagger() -> Files:
    return build_files(
        num_layers=LAYERS, task=TOKEN_CLASSIFICATION, attention="full", position="learned", norm="post", causal=True
    )


def culprit_of(files: Files, backend: str, case: Case | None = None) -> Culprit | None:
    read = files.__getitem__
    return find_culprit(read, open_runtime(backend, read), [case or case_of()])


@pytest.mark.parametrize("backend", [OFF, ALL, TORCHSCRIPT, "torchscript-frozen", "onnx-reference"])
@pytest.mark.parametrize("subject", ["deep", "deep_tagger"])
def test_good_files_have_no_culprit(request: pytest.FixtureRequest, subject: str, backend: str) -> None:
    files = request.getfixturevalue(subject)
    for case in (case_of(), case_of(3, 19)):
        assert culprit_of(files, backend, case) is None


def edited(files: Files, edit: Callable[[onnx.ModelProto], None]) -> Files:
    model = onnx.load_from_string(files[ONNX_FILE])
    edit(model)
    return {**files, ONNX_FILE: model.SerializeToString()}


def node_of(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in all_nodes(model.graph) if node.name == name)


def attentions_of(model: onnx.ModelProto, layer: str) -> list[onnx.NodeProto]:
    """Return a layer's operators: for even rows, and one for each group of rows."""
    return [node for node in all_nodes(model.graph) if node.name.startswith(f"{layer}.attention/Attention")]


def change_tensor(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = np.asarray(change(numpy_helper.to_array(tensor).copy()), np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def set_attribute(model: onnx.ModelProto, node: str, name: str, value: object) -> None:
    tools.set_attribute(node_of(model, node), name, value)


def one_more(values: np.ndarray) -> np.ndarray:
    values.flat[3] += 1e-2
    return values


def drop_bias(model: onnx.ModelProto, layer: str) -> None:
    node = node_of(model, f"{layer}.attention.out/Add")
    node.op_type = "Identity"
    del node.input[1:]


def ignore_mask(model: onnx.ModelProto, layer: str) -> None:
    for attention in attentions_of(model, layer):
        del attention.input[3:]


def wrong_residual(model: onnx.ModelProto, layer: str) -> None:
    """The second sum of the block starts from the block's input, not from the first sum."""
    first, second = node_of(model, f"{layer}/Add"), node_of(model, f"{layer}/Add_1")
    second.input[0] = first.input[0]


def swapped_heads(model: onnx.ModelProto, layer: str) -> None:
    """Queries and keys change places, as when a fused projection is cut in another order."""
    for attention in attentions_of(model, layer):
        attention.input[0], attention.input[1] = attention.input[1], attention.input[0]


def scaled(model: onnx.ModelProto, layer: str) -> None:
    for attention in attentions_of(model, layer):
        tools.set_attribute(attention, "scale", 1.0)


# What is done to layer `encoder.blocks.k` of the ONNX file, and the module inside it and the operator that are named.
ONNX_FAULTS: dict[str, tuple[Callable[[onnx.ModelProto, str], None], str, str]] = {
    "weight-x1.01": (
        lambda model, layer: change_tensor(model, f"{layer}.feed_forward.up.weight", lambda values: values * 1.01),
        ".feed_forward.up",
        "Add",
    ),
    "one-weight": (
        lambda model, layer: change_tensor(model, f"{layer}.attention.qkv.weight", one_more),
        ".attention.qkv",
        "Add",
    ),
    "activation": (
        lambda model, layer: set_attribute(model, f"{layer}.feed_forward.activation/Gelu", "approximate", "tanh"),
        ".feed_forward.activation",
        "Gelu",
    ),
    "epsilon": (
        lambda model, layer: set_attribute(model, f"{layer}.feed_forward_norm/LayerNormalization", "epsilon", 1e-2),
        ".feed_forward_norm",
        "LayerNormalization",
    ),
    "mask-ignored": (ignore_mask, ".attention", "Attention"),
    "scale": (scaled, ".attention", "Attention"),
    "queries-for-keys": (swapped_heads, ".attention", "Attention"),
    "bias-dropped": (drop_bias, ".attention.out", "MatMul"),
    "wrong-residual": (wrong_residual, "", "Add"),
}


@pytest.mark.parametrize("k", range(LAYERS))
@pytest.mark.parametrize("fault", ONNX_FAULTS)
def test_a_fault_in_layer_k_of_the_onnx_file_is_found_there(deep: Files, fault: str, k: int) -> None:
    plant, module, operator = ONNX_FAULTS[fault]
    layer = f"encoder.blocks.{k}"
    # More rows than groups, so that a short one shares a rectangle with a longer one, and the mask counts.
    found = culprit_of(edited(deep, lambda model: plant(model, layer)), OFF, case_of(9))
    assert found is not None
    assert (found.module, found.operator) == (f"{layer}{module}", operator)
    assert found.distance is not None
    assert found.distance > found.budget > 0


class OtherAttention(nn.Module):
    """Looks at padding too, or takes another scale."""

    def __init__(self, *, masked: bool, scale: float) -> None:
        super().__init__()
        self.masked, self.scale = masked, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        scores = (q * self.scale) @ k.transpose(-2, -1)
        if self.masked and keep is not None:
            scores = scores.masked_fill(~keep[:, None, None, :], -1e9)
        return scores.softmax(dim=-1) @ v


class WrongResidual(PreNormBlock):
    """The second sum starts from the block's input."""

    def forward(self, x: Tensor, packing: Packing, bias: Tensor | None) -> Tensor:
        inner = x + self.dropout(self.attention(self.attention_norm(x), packing, bias))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(inner)))


def change_parameter(name: str, change: Callable[[Tensor], object]) -> Callable[[nn.Module], None]:
    def plant(block: nn.Module) -> None:
        with torch.no_grad():
            change(block.get_parameter(name))

    return plant


def replace(path: str, name: str, value: Any) -> Callable[[nn.Module], None]:
    return lambda block: setattr(block.get_submodule(path), name, value)


# The same for the TorchScript file, planted in the eager block before it is scripted.
TORCHSCRIPT_FAULTS: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "weight-x1.01": (
        change_parameter("feed_forward.up.weight", lambda weight: weight.mul_(1.01)),
        ".feed_forward.up",
        "aten::linear",
    ),
    "one-weight": (
        change_parameter("attention.qkv.weight", lambda weight: weight.view(-1)[3].add_(1e-2)),
        ".attention.qkv",
        "aten::linear",
    ),
    "activation": (
        replace("feed_forward", "activation", nn.GELU(approximate="tanh")),
        ".feed_forward.activation",
        "aten::gelu",
    ),
    "epsilon": (replace("feed_forward_norm", "eps", 1e-2), ".feed_forward_norm", "aten::layer_norm"),
    "mask-ignored": (
        replace("attention", "attend", OtherAttention(masked=False, scale=8**-0.5)),
        ".attention.attend",
        "aten::matmul",
    ),
    "scale": (
        replace("attention", "attend", OtherAttention(masked=True, scale=1.0)),
        ".attention.attend",
        "aten::matmul",
    ),
    "bias-dropped": (
        change_parameter("attention.out.bias", lambda bias: bias.zero_()),
        ".attention.out",
        "aten::linear",
    ),
    "wrong-residual": (lambda block: setattr(block, "__class__", WrongResidual), "", "aten::add"),
}


def scripted(files: Files, model: nn.Module) -> Files:
    return {**files, TORCHSCRIPT_FILE: export_torchscript(model, metadata_of(files))}


@pytest.mark.parametrize("k", range(LAYERS))
@pytest.mark.parametrize("fault", TORCHSCRIPT_FAULTS)
def test_a_fault_in_layer_k_of_the_torchscript_file_is_found_there(deep: Files, fault: str, k: int) -> None:
    plant, module, operator = TORCHSCRIPT_FAULTS[fault]
    model: Any = eager_model(deep)
    plant(model.encoder.blocks[k])
    found = culprit_of(scripted(deep, model), TORCHSCRIPT)
    assert found is not None
    assert (found.module, found.operator) == (f"encoder.blocks.{k}{module}", operator)
    assert found.distance is not None
    assert found.distance > found.budget > 0


# Behind the choice between even rows and groups, and in a branch of it.
@pytest.mark.parametrize("before", ["If", "Attention"])
@pytest.mark.parametrize("k", range(LAYERS))
def test_a_node_of_layer_k_that_onnxruntime_can_not_run_is_named(deep: Files, k: int, before: str) -> None:
    def freeze(model: onnx.ModelProto) -> None:
        """The example's shape takes the place of the input's."""
        module = f"encoder.blocks.{k}.attention"
        reshape = next(
            node
            for node in all_nodes(model.graph)
            if node.name.startswith(f"{module}/Reshape") and maker_of(model, node.input[0]).op_type == before
        )
        model.graph.initializer.append(numpy_helper.from_array(np.array([1, 5 * 11, 16], np.int64), "example_shape"))
        reshape.input[1] = "example_shape"

    found = culprit_of(edited(deep, freeze), OFF)
    assert found == Culprit(module=f"encoder.blocks.{k}.attention", operator="Reshape", distance=None, budget=0.0)


def maker_of(model: onnx.ModelProto, value: str) -> onnx.NodeProto:
    return next(node for node in all_nodes(model.graph) if value in node.output)


class FrozenShape(nn.Module):
    """An attention that was traced: the example's shape stays."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        return (q + v).view(5, 2, 11, 8)


class Wrapper(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask)


@pytest.mark.parametrize("k", range(LAYERS))
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
def test_a_call_in_layer_k_that_torchscript_can_not_run_is_named(deep: Files, k: int, wrapped: bool) -> None:
    model: Any = eager_model(deep)
    model.encoder.blocks[k].attention.attend = FrozenShape()
    found = culprit_of(scripted(deep, Wrapper(model).eval() if wrapped else model), TORCHSCRIPT)
    module = f"encoder.blocks.{k}.attention.attend"
    assert found == Culprit(module=module, operator="aten::view", distance=None, budget=0.0)


def test_the_first_of_two_faults_is_named(deep: Files) -> None:
    def plant(model: onnx.ModelProto) -> None:
        for layer, fault in (("encoder.blocks.2", "activation"), ("encoder.blocks.1", "scale")):
            ONNX_FAULTS[fault][0](model, layer)

    found = culprit_of(edited(deep, plant), OFF)
    assert found is not None
    assert found.module == "encoder.blocks.1.attention"


def bare(model: onnx.ModelProto) -> None:
    for number, node in enumerate(all_nodes(model.graph)):
        node.name = f"node_{number}"


# Without names the weights tell whose a node is, and what has none is known by what comes before and after.
@pytest.mark.parametrize(
    ("fault", "module"),
    [
        ("weight-x1.01", "encoder.blocks.1.feed_forward.up"),
        ("activation", "encoder.blocks.1.feed_forward.activation"),
        ("scale", "encoder.blocks.1.attention"),
        ("bias-dropped", "encoder.blocks.1.attention.out"),
        ("epsilon", "encoder.blocks.1.feed_forward_norm"),
    ],
)
def test_a_fault_is_found_in_a_file_whose_nodes_lost_their_names(deep: Files, fault: str, module: str) -> None:
    files = edited(edited(deep, lambda model: ONNX_FAULTS[fault][0](model, "encoder.blocks.1")), bare)
    found = culprit_of(files, OFF)
    assert found is not None
    assert found.module == module


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("encoder.embedding.weight", "encoder.embedding"),
        ("encoder.position.table", "encoder.position"),
        ("encoder.norm.bias", "encoder.norm"),
        ("head.1.weight", "head.1"),
        ("head.4.bias", "head.4"),
    ],
)
def test_a_fault_outside_the_layers_is_found(deep: Files, name: str, module: str) -> None:
    found = culprit_of(edited(deep, lambda model: change_tensor(model, name, lambda values: values * 1.01)), OFF)
    assert found is not None
    assert found.module == module


def test_a_fault_behind_the_last_module_is_laid_to_the_logits(deep: Files) -> None:
    def plant(model: onnx.ModelProto) -> None:
        node_of(model, "head.4/Squeeze").output[0] = "clean"
        model.graph.node.append(helper.make_node("Neg", ["clean"], [LOGITS], name="negated"))

    found = culprit_of(edited(deep, plant), OFF)
    assert found is not None
    assert (found.module, found.operator) == (LOGITS, "Neg")


@pytest.mark.parametrize("k", range(LAYERS))
@pytest.mark.parametrize(
    ("fault", "module"),
    [
        ("weight-x1.01", ".feed_forward.up"),
        ("epsilon", ".feed_forward_norm"),
        ("bias-dropped", ".attention.out"),
        ("wrong-residual", ""),
    ],
)
def test_a_fault_in_layer_k_of_a_tagger_is_found_there(deep_tagger: Files, fault: str, module: str, k: int) -> None:
    layer = f"encoder.blocks.{k}"
    found = culprit_of(edited(deep_tagger, lambda model: ONNX_FAULTS[fault][0](model, layer)), OFF)
    assert found is not None
    assert found.module == layer + module


@pytest.mark.parametrize(
    ("fault", "operator"), [("weight-x1.01", "aten.linear"), ("wrong-residual", "aten.add.Tensor")]
)
def test_a_fault_in_layer_1_of_the_pt2_file_is_found_there(deep: Files, fault: str, operator: str) -> None:
    plant, module, _ = TORCHSCRIPT_FAULTS[fault]
    model: Any = eager_model(deep)
    plant(model.encoder.blocks[1])
    limits = Limits(max_length=19, vocab_size=40)
    found = culprit_of({**deep, PT2_FILE: export_pt2(capture(model, limits), metadata_of(deep))}, PT2)
    assert found is not None
    assert (found.module, found.operator) == (f"encoder.blocks.1{module}", operator)


def test_a_fault_in_layer_k_of_the_half_precision_file_is_found_there(deep: Files) -> None:
    files = {**deep, ONNX_FP16_FILE: half_file(deep)}
    backend = "onnxruntime-cpu-all-float16"
    assert culprit_of(files, backend) is None
    for k in range(LAYERS):
        model = onnx.load_from_string(files[ONNX_FP16_FILE])
        set_attribute(model, f"encoder.blocks.{k}.feed_forward_norm/LayerNormalization", "epsilon", 1.0)
        found = culprit_of({**files, ONNX_FP16_FILE: model.SerializeToString()}, backend)
        assert found is not None
        assert found.module == f"encoder.blocks.{k}.feed_forward_norm"


class ReadsTooFar(nn.Module):
    """An attention that reads tokens that are not there."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, bias: Tensor | None) -> Tensor:
        return v.index_select(2, torch.arange(v.size(2)) + 5)


def test_a_node_that_a_pt2_file_can_not_run_is_named(deep: Files) -> None:
    model: Any = eager_model(deep)
    model.encoder.blocks[1].attention.attend = ReadsTooFar()
    data = export_pt2(capture(model.eval(), Limits(max_length=19, vocab_size=40)), metadata_of(deep))
    found = culprit_of({**deep, PT2_FILE: data}, PT2)
    module = "encoder.blocks.1.attention.attend"
    assert found == Culprit(module=module, operator="aten.index_select", distance=None, budget=0.0)


def test_a_good_pt2_file_has_no_culprit(deep_tagger: Files) -> None:
    limits = Limits(max_length=19, vocab_size=40)
    data = export_pt2(capture(eager_model(deep_tagger), limits), metadata_of(deep_tagger))
    assert culprit_of({**deep_tagger, PT2_FILE: data}, PT2) is None


@pytest.mark.parametrize("subject", ["deep", "deep_tagger"])
def test_the_values_of_a_torchscript_file_are_those_that_it_computes(
    request: pytest.FixtureRequest, subject: str
) -> None:
    """The only test of torch's private interface for graphs: every eager point is there, and the last is the answer."""
    files, case = request.getfixturevalue(subject), case_of()
    found = torchscript_points(files[TORCHSCRIPT_FILE], case)
    logits = open_runtime(TORCHSCRIPT, files.__getitem__).run(case.input_ids, case.attention_mask)
    np.testing.assert_array_equal(found[LOGITS_POINT].value, logits)
    values = trace_eager(eager_model(files), case)
    assert {value.point for value in values} <= found.keys()
    for value in values:
        np.testing.assert_allclose(found[value.point].value, value.value, rtol=1e-4, atol=1e-4)


def test_eager_is_followed_in_the_order_of_execution(deep: Files) -> None:
    values = {value.point: value for value in trace_eager(eager_model(deep), case_of())}
    given = [point.module for point in values if point.side == GIVES]
    assert given.index("encoder.embedding") < given.index("encoder.position") < given.index("encoder.blocks.0")
    assert given.index("encoder.blocks.0.feed_forward.down") < given.index("encoder.blocks.0")
    assert given[-1] == ""
    # Dropout at rest makes nothing, so the position made what the first block takes; the residual nobody made.
    taken = values[Point("encoder.blocks.0", FORWARD, 0, TAKES)]
    assert taken.maker == Point("encoder.position", "add", 0, GIVES)
    residual = values[Point("encoder.blocks.0.feed_forward_norm", FORWARD, 0, TAKES)]
    assert (residual.maker, residual.outer) == (None, "encoder.blocks.0")
