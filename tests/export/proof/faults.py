"""FAULTS: what an attacker can do to the structure of files, and which checks see it.

They are planted so that the numbers of a model barely move, or not at all: only structure can show them.
"""

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from sentencepiece import sentencepiece_model_pb2

from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.example import choose_example
from export.files import dump_json
from export.model import CONFIG_FILE, model_limits
from export.onnx_export import ONNX_FILE
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from tests.export.proof.planting import (
    Files,
    Plant,
    add_record,
    append_bytes,
    edit_code,
    edit_onnx,
    edit_pt2,
    edit_record,
    named,
    node,
    onnx_fault,
    rescript,
    set_argument,
    set_attribute,
    set_file,
    set_metadata,
    swap_inputs,
)
from tests.export.proof.subjects import eager_model
from tests.sabotage import tools
from tests.sabotage.faults.archives import key_twice
from tests.sabotage.faults.onnx_graphs import rename_value, tell_of_nothing

HEADS, WIDTH = 2, 8
# Of the operators of a layer the first is for even rows, and has no mask; then comes one a group.
A_GROUP = 1


def swap_weights(model: onnx.ModelProto) -> None:
    """Let the two norms change places, names and all; every weight is still there."""
    for place in (1, 2):
        first, second = node(model, "LayerNormalization", 0).input, node(model, "LayerNormalization", 1).input
        first[place], second[place] = second[place], first[place]


def metadata_key_twice(model: onnx.ModelProto) -> None:
    (entry,) = model.metadata_props
    entry.value = key_twice(entry.value.encode()).decode()


def use_twice(model: onnx.ModelProto) -> None:
    """Add a weight's bias again where the other bias belongs."""
    named(model, "encoder.blocks.0.attention.out/Add").input[1] = "encoder.blocks.0.feed_forward.down.bias"


def skip_a_norm(model: onnx.ModelProto) -> None:
    """Feed the up-projection what the norm before it was given; the norm stays in the file, to be counted."""
    taken = named(model, "encoder.blocks.0.feed_forward.up/MatMul").input
    taken[0] = node(model, "LayerNormalization", 1).input[0]


def store_twice(model: onnx.ModelProto) -> None:
    name = "encoder.blocks.0.feed_forward.up.weight"
    copy = onnx.TensorProto()
    copy.CopyFrom(next(tensor for tensor in model.graph.initializer if tensor.name == name))
    copy.name = "copy"
    model.graph.initializer.append(copy)
    for user in model.graph.node:
        for place, taken in enumerate(user.input):
            if taken == name:
                user.input[place] = "copy"


def other_table(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == "encoder.position.table":
            values = numpy_helper.to_array(tensor).copy()
            values[-1, 0] += 2.0**-20
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def scale_output(model: onnx.ModelProto) -> None:
    """Multiply the answer by a number next to 1: no test input can tell."""
    for user in model.graph.node:
        for place, name in enumerate(user.output):
            if name == "logits":
                user.output[place] = "clean"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1.0000001), "factor"))
    model.graph.node.append(helper.make_node("Mul", ["clean", "factor"], ["logits"], name="scaled"))


def add_nothing(model: onnx.ModelProto) -> None:
    """Add ids times zero to the answer."""
    for user in model.graph.node:
        for place, name in enumerate(user.output):
            if name == "logits":
                user.output[place] = "clean"
    model.graph.node.append(helper.make_node("Identity", ["clean"], ["logits"], name="same"))


def compare_positions_backwards(model: onnx.ModelProto) -> None:
    taken = node(model, "LessOrEqual").input
    taken[0], taken[1] = taken[1], taken[0]


def turn_back(model: onnx.ModelProto) -> None:
    """Multiply by a square weight as it stands, not by its transpose."""
    tools.set_attribute(named(model, "encoder.blocks.0.attention.out/Transpose"), "perm", [0, 1])


def scale_linear(model: onnx.ModelProto) -> None:
    product = named(model, "encoder.blocks.0.attention.out/MatMul")
    place = list(model.graph.node).index(product)
    made, product.output[0] = product.output[0], "clean"
    model.graph.initializer.append(numpy_helper.from_array(np.float32(1.0000001), "factor"))
    model.graph.node.insert(place + 1, helper.make_node("Mul", ["clean", "factor"], [made], name="scaled"))


def constant_mask(model: onnx.ModelProto) -> None:
    """Give attention a mask that follows from the mask's sizes only."""
    attention = node(model, "Attention", A_GROUP)
    home = tools.home_of(model, attention)
    place = list(home.node).index(attention)
    true = numpy_helper.from_array(np.array([True]))
    made = helper.make_node("ConstantOfShape", ["mask_sizes"], ["mask_of_ones"], name="ones", value=true)
    sizes = helper.make_node("Shape", [attention.input[3]], ["mask_sizes"], name="sizes")
    attention.input[3] = "mask_of_ones"
    for new in (made, sizes):
        home.node.insert(place, new)


def ask_nothing(model: onnx.ModelProto) -> None:
    """Let the first layer take all rows for equally long."""
    equal = helper.make_node("Equal", [node(model, "Size").output[0]] * 2, ["always"], name="always")
    choice = node(model, "If", 1)
    model.graph.node.insert(list(model.graph.node).index(choice), equal)
    choice.input[0] = "always"


def group_without_mask(model: onnx.ModelProto) -> None:
    del node(model, "Attention", A_GROUP).input[3]


def other_heads(model: onnx.ModelProto) -> None:
    for name in ("q_num_heads", "kv_num_heads"):
        tools.set_attribute(node(model, "Attention"), name, 4)
    model.graph.ClearField("value_info")


def write_out_attention(model: onnx.ModelProto) -> None:
    """Replace the fused operator by its definition; the same numbers, without the kernel."""
    fused = node(model, "Attention", A_GROUP)
    home = tools.home_of(model, fused)
    place = list(home.node).index(fused)
    q, k, v, added = fused.input
    stored = {"root": np.float32(WIDTH**-0.5)}
    stored |= {"apart": np.array([0, 0, HEADS, WIDTH]), "joined": np.array([0, 0, -1])}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in stored.items())
    nodes = [helper.make_node("Reshape", [part, "apart"], [f"{part}.1"], name=f"{part}.1") for part in (q, k, v)]
    nodes += [
        helper.make_node("Transpose", [f"{part}.1"], [f"{part}.2"], name=f"{part}.2", perm=[0, 2, 1, 3])
        for part in (q, k, v)
    ]
    nodes += [
        helper.make_node("Mul", [f"{q}.2", "root"], ["q1"], name="n1"),
        helper.make_node("Transpose", [f"{k}.2"], ["k1"], name="n2", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q1", "k1"], ["scores"], name="n3"),
        helper.make_node("Add", ["scores", added], ["masked"], name="n4"),
        helper.make_node("Softmax", ["masked"], ["weights"], name="n5", axis=-1),
        helper.make_node("MatMul", ["weights", f"{v}.2"], ["mixed"], name="n6"),
        helper.make_node("Transpose", ["mixed"], ["mixed1"], name="n7", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["mixed1", "joined"], [fused.output[0]], name="n8"),
    ]
    home.node.remove(fused)
    for number, new in enumerate(nodes):
        home.node.insert(place + number, new)


def exchange_parts(operator: str, place: int) -> Callable[[onnx.ModelProto], None]:
    """Let keys take the part of a weight or bias that is the values', and the other way round."""

    def edit(model: onnx.ModelProto) -> None:
        keys, values = (named(model, f"encoder.blocks.0.attention.qkv/{operator}_{number}").input for number in (1, 2))
        keys[place], values[place] = values[place], keys[place]

    return edit


def keys_of_other_input(model: onnx.ModelProto) -> None:
    """Let keys be made of what comes into the block, not of its norm."""
    keys = named(model, "encoder.blocks.0.attention.qkv/MatMul_1")
    norm = node(model, "LayerNormalization")
    place = list(model.graph.node).index(keys)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "leading"))
    model.graph.node.insert(place, helper.make_node("Unsqueeze", [norm.input[0], "leading"], ["raw"], name="raw"))
    keys.input[0] = "raw"


def values_in_other_cells(model: onnx.ModelProto) -> None:
    """Lay values out by another map than queries and keys."""
    attention = node(model, "Attention", A_GROUP)
    home = tools.home_of(model, attention)
    (squeeze,) = (maker for maker in home.node if attention.input[2] in maker.output)
    (gather,) = (maker for maker in home.node if squeeze.input[0] in maker.output)
    place = list(home.node).index(gather)
    model.graph.initializer.append(numpy_helper.from_array(np.array(0), "nothing_more"))
    cells = helper.make_node("Add", [gather.input[1], "nothing_more"], ["cells"], name="cells")
    home.node.insert(place, cells)
    gather.input[1] = "cells"


def split_elsewhere(model: onnx.ModelProto) -> None:
    """Split the turned weight of queries, keys and values along its other axis, where sizes allow that at load."""
    split = next(user for user in model.graph.node if user.op_type == "Split" and len(user.output) == 3)
    tools.set_attribute(split, "axis", 0)


def freeze_inside(model: onnx.ModelProto) -> None:
    """Cut ids and mask at a length far above every test's."""
    names = {"from": [0], "to": [300], "axis": [1]}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in names.items())
    for name in ("input_ids", "attention_mask"):
        for user in model.graph.node:
            for place, taken in enumerate(user.input):
                if taken == name:
                    user.input[place] = f"cut_{name}"
    for name in ("input_ids", "attention_mask"):
        cut = helper.make_node("Slice", [name, "from", "to", "axis"], [f"cut_{name}"], name=f"cut_{name}")
        model.graph.node.insert(0, cut)


def freeze_told_axis(model: onnx.ModelProto) -> None:
    sizes = model.graph.value_info[-1].type.tensor_type.shape.dim
    next(size for size in sizes if not size.HasField("dim_value")).dim_value = 61


def random_node(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("RandomNormal", [], ["noise"], name="noise", shape=[1]))


def size_of_example(files: Files) -> int:
    """Return a size that stands for nothing else: a short model's length may be a format's code."""
    return max(choose_example(eager_model(files), model_limits(json.loads(files[CONFIG_FILE]))).telling)


def constant_of_example(files: Files) -> None:
    """Leave the example's size in a constant that changes no answer."""
    size = size_of_example(files)

    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array(size), "size"))
        model.graph.node.append(helper.make_node("Identity", ["size"], ["unused"], name="unused"))

    edit_onnx(files, edit)


def script_constant_of_example(files: Files) -> None:
    size = size_of_example(files)
    edit_code("heads", "    return logits\n", f"    return torch.slice(logits, 1, 0, {size})\n")(files)


def path_in_pieces(files: Files) -> None:
    model = sentencepiece_model_pb2.ModelProto()
    model.pieces.add(piece="/usr/share/licenses/", score=-1.0, type=1)
    files[TOKENIZER_FILE] = model.SerializeToString()


def path_in_tokenizer(files: Files) -> None:
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.input.append("/home/someone/data/train.txt")
    files[TOKENIZER_FILE] = model.SerializeToString()


def store_record_twice(files: Files) -> None:
    """Store a weight's bytes again, under a number that no tensor names."""
    with zipfile.ZipFile(io.BytesIO(files[TORCHSCRIPT_FILE])) as archive:
        data = archive.read("archive/data/4")
    add_record("archive/data/99", data)(files)


def config_with(**more: object) -> Plant:
    def plant(files: Files) -> None:
        files[CONFIG_FILE] = dump_json({**json.loads(files[CONFIG_FILE]), **more}).encode()

    return plant


def zip_comment(files: Files) -> None:
    buffer = io.BytesIO(files[TORCHSCRIPT_FILE])
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = b"made by me"
    files[TORCHSCRIPT_FILE] = buffer.getvalue()


def unknown_field(files: Files) -> None:
    # Field 3000, of variable length: protobuf carries it along and no reader of ONNX shows it.
    files[ONNX_FILE] += b"\xc2\xbb\x01\x05hello"


def swap_layers(model: onnx.ModelProto) -> None:
    """Let the layers' up-projections change places."""
    for operator, place in (("Transpose", 0), ("Add", 1)):
        first, second = (named(model, f"encoder.blocks.{k}.feed_forward.up/{operator}").input for k in range(2))
        first[place], second[place] = second[place], first[place]


def drop_causal(model: onnx.ModelProto) -> None:
    """Let the mask be the padding's alone; the comparison stays in the file, to be counted."""
    # The first joins nothing of attention: it packs a batch without tokens.
    both = node(model, "And", 1)
    for user in model.graph.node:
        for place, taken in enumerate(user.input):
            if taken == both.output[0]:
                user.input[place] = both.input[1]


def values_for_queries(model: onnx.ModelProto) -> None:
    split = node(model, "Split").output
    first, _, third = (next(user for user in model.graph.node if part in user.input) for part in split)
    first.input[0], third.input[0] = third.input[0], first.input[0]


def drop_softmax(model: onnx.ModelProto) -> None:
    softmax = node(model, "Softmax", 1)
    softmax.op_type = "Sigmoid"
    del softmax.attribute[:]


def other_scale(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.35355), "scale"))
    product = named(model, "encoder.blocks.0.attention.attend/MatMul")
    scaled = next(user for user in model.graph.node if user.output[0] == product.input[0])
    scaled.input[1] = "scale"


def swap_pt2_norms(graph: dict[str, Any]) -> None:
    norms = [call for call in graph["nodes"] if ".layer_norm." in call["target"]]
    for place in (2, 3):
        first, second = norms[0]["inputs"][place], norms[1]["inputs"][place]
        first["arg"], second["arg"] = second["arg"], first["arg"]


def relu_for_gelu(graph: dict[str, Any]) -> None:
    call = next(call for call in graph["nodes"] if ".gelu." in call["target"])
    call["target"] = "torch.ops.aten.relu.default"


def store_pt2_record_twice(files: Files) -> None:
    with zipfile.ZipFile(io.BytesIO(files[PT2_FILE])) as archive:
        data = archive.read("archive/data/weights/weight_3")
    add_record("archive/data/weights/weight_99", data, PT2_FILE)(files)


def pt2_constant_of_example(files: Files) -> None:
    set_argument("slice", "end", {"as_int": size_of_example(files)})(files)


# The strongest check of each file sees every fault that changes the graph.
ONNX = ("model.onnx is a fresh export",)
SCRIPT = ("model.pt is a fresh export",)
PT2 = ("model.pt2 is a fresh export",)

# A fault, and the checks that see it: these and no others.
FAULTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    # Weights.
    "onnx-two-norms-swapped": (onnx_fault(swap_weights), ("weights in their places", *ONNX)),
    "onnx-a-bias-used-twice": (onnx_fault(use_twice), ("weights", "weights in their places", *ONNX)),
    "onnx-a-module-skipped": (onnx_fault(skip_a_norm), ("weights in their places", *ONNX)),
    "onnx-a-weight-stored-twice": (onnx_fault(store_twice), ("weights stored once", *ONNX)),
    "onnx-the-wrong-transpose": (onnx_fault(turn_back), ("weights in their places", *ONNX)),
    "onnx-another-position-table": (onnx_fault(other_table), ("weights", "tables", *ONNX)),
    "script-two-norms-swapped": (
        edit_code("block", "(attention_norm).forward(x, )", "(self.feed_forward_norm).forward(x, )"),
        ("weights in their places", *SCRIPT),
    ),
    "script-a-module-skipped": (
        edit_code("block", "(feed_forward_norm).forward(x0, ), )", "(feed_forward_norm).forward(x, ), )"),
        ("weights in their places", *SCRIPT),
    ),
    "script-a-weight-stored-twice": (store_record_twice, ("weights stored once",)),
    "script-a-record-that-is-no-weight": (add_record("archive/data/99", b"12345678"), ("weights stored once",)),
    # Attributes.
    "onnx-epsilon": (set_attribute("LayerNormalization", "epsilon", 1e-6), ("LayerNorm epsilon", *ONNX)),
    "onnx-norm-in-half": (set_attribute("LayerNormalization", "stash_type", 10), ("operators' attributes", *ONNX)),
    "onnx-gelu-by-tanh": (set_attribute("Gelu", "approximate", "tanh"), ("operators' attributes", *ONNX)),
    "onnx-linear-times-a-number": (onnx_fault(scale_linear), ("numbers", *ONNX)),
    "onnx-positions-off-by-one": (set_attribute("CumSum", "exclusive", 1), ("operators' attributes", *ONNX)),
    "onnx-attention-scale": (set_attribute("Attention", "scale", 0.3537), ("attention", *ONNX)),
    "onnx-attention-causal": (set_attribute("Attention", "is_causal", 1), ("attention", *ONNX)),
    "onnx-attention-softcap": (set_attribute("Attention", "softcap", 1e6), ("attention", *ONNX)),
    "onnx-queries-for-keys": (swap_inputs("Attention", 0, 1), ("attention", *ONNX)),
    "onnx-mask-of-sizes": (onnx_fault(constant_mask), ("attention", *ONNX)),
    "onnx-weights-of-keys-for-values": (onnx_fault(exchange_parts("MatMul", 1)), ("attention", *ONNX)),
    "onnx-biases-of-keys-for-values": (onnx_fault(exchange_parts("Add", 1)), ("attention", *ONNX)),
    "onnx-keys-of-another-input": (onnx_fault(keys_of_other_input), ("attention", *ONNX)),
    "onnx-rows-even-unasked": (onnx_fault(ask_nothing), ("attention", *ONNX)),
    "onnx-group-without-mask": (onnx_fault(group_without_mask), ("attention", *ONNX)),
    "onnx-values-in-other-cells": (onnx_fault(values_in_other_cells), ("attention", *ONNX)),
    "onnx-parts-of-another-axis": (
        onnx_fault(split_elsewhere),
        ("attention", "onnx.checker", *ONNX),
    ),
    "onnx-heads": (onnx_fault(other_heads), ("attention", "onnx.checker", *ONNX)),
    "onnx-attention-written-out": (onnx_fault(write_out_attention), ("attention", "fused attention", "numbers", *ONNX)),
    "onnx-times-nearly-one": (onnx_fault(scale_output), ("numbers", *ONNX)),
    "onnx-a-node-more": (onnx_fault(add_nothing), ONNX),
    "script-epsilon": (
        rescript(lambda model: setattr(model.encoder.norm, "eps", 1e-6)),
        ("LayerNorm epsilon", "numbers", *SCRIPT),
    ),
    "script-gelu-by-tanh": (
        edit_code("activation", "torch.gelu(input)", 'torch.gelu(input, approximate="tanh")'),
        ("operators' attributes", *SCRIPT),
    ),
    "script-relu-for-gelu": (
        edit_code("activation", "torch.gelu(input)", "torch.relu(input)"),
        ("activation", *SCRIPT),
    ),
    "script-attention-scale": (
        edit_code("sdpa", "(q, k, v, opened0)", "(q, k, v, opened0, 0., False, scale=0.3537)"),
        ("attention", "numbers", *SCRIPT),
    ),
    "script-attention-dropout": (
        edit_code("sdpa", "(q, k, v, opened0)", "(q, k, v, opened0, 0.10000000000000001)"),
        ("attention", *SCRIPT),
    ),
    "script-attention-without-mask": (
        edit_code("sdpa", "(q, k, v, opened0)", "(q, k, v, None)"),
        ("attention", *SCRIPT),
    ),
    "script-queries-for-keys": (edit_code("self_attention", "q, k, v, =", "k, q, v, ="), ("attention", *SCRIPT)),
    "script-heads": (
        edit_code("self_attention", "q0 = _0(q, num_heads, )", "q0 = _0(q, 4, )"),
        ("attention", *SCRIPT),
    ),
    "script-causal": (
        rescript(lambda model: setattr(model.encoder.blocks[0].attention.attend, "causal", True)),
        ("attention", *SCRIPT),
    ),
    "script-embeddings-times-nearly-four": (
        rescript(lambda model: setattr(model.encoder, "scale", 4.0000001)),
        ("numbers", *SCRIPT),
    ),
    "script-times-nearly-one": (
        edit_code("heads", "return logits", "return torch.mul(logits, 1.0000001)"),
        ("numbers", *SCRIPT),
    ),
    "script-an-operation-more": (edit_code("heads", "return logits", "return torch.contiguous(logits)"), SCRIPT),
    # What a runtime sees.
    "onnx-opset": (
        onnx_fault(lambda model: setattr(model.opset_import[0], "version", 20)),
        ("onnx.checker", "opset and IR version"),
    ),
    "onnx-ir-version": (
        onnx_fault(lambda model: setattr(model, "ir_version", 11)),
        ("opset and IR version",),
    ),
    "minimum-runtime": (
        set_metadata(lambda metadata: metadata["minimum_runtime"].update(onnxruntime="1.16.3")),
        ("minimum runtime",),
    ),
    "minimum-libtorch": (
        set_metadata(lambda metadata: metadata["minimum_runtime"].update(libtorch="1.0.0")),
        ("minimum runtime",),
    ),
    "script-renamed-argument": (
        edit_code("heads", "attention_mask", "mask"),
        ("inputs, outputs, axes", *SCRIPT),
    ),
    "script-returns-a-pair": (
        lambda files: (
            edit_code("heads", "return logits", "return (logits, logits)")(files),
            edit_code(
                "heads", "attention_mask: Tensor) -> Tensor:", "attention_mask: Tensor) -> Tuple[Tensor, Tensor]:"
            )(files),
        )[0],
        ("inputs, outputs, axes", *SCRIPT),
    ),
    "script-a-second-method": (
        edit_code(
            "heads",
            "    return logits\n",
            "    return logits\n  def more(self: __torch__.models.heads.TextClassifier) -> int:\n    return 1\n",
        ),
        ("inputs, outputs, axes", *SCRIPT),
    ),
    "onnx-length-cut-inside": (onnx_fault(freeze_inside), ("no frozen axis", *ONNX)),
    "onnx-axis-told-frozen": (onnx_fault(freeze_told_axis), ("no frozen axis", *ONNX)),
    "onnx-constant-of-the-example": (constant_of_example, ("no frozen axis", "no size of the example", *ONNX)),
    "script-constant-of-the-example": (
        script_constant_of_example,
        ("no frozen axis", "no size of the example", *SCRIPT),
    ),
    # Training, chance, devices.
    "onnx-random-node": (onnx_fault(random_node), ("inference mode", *ONNX)),
    "script-dropout-always-on": (
        edit_code("nn/functional", "torch.dropout(input, p, training)", "torch.dropout(input, p, True)"),
        ("inference mode", *SCRIPT),
    ),
    "script-noise": (
        edit_code("heads", "return logits", "return torch.add(logits, torch.mul(torch.rand_like(logits), 0.))"),
        ("inference mode", *SCRIPT),
    ),
    "script-device": (
        edit_code("packing", "device = ops.prim.device(attention_mask)", 'device = torch.device("cpu")'),
        ("no baked device", *SCRIPT),
    ),
    # Traces.
    "path-in-tokenizer": (path_in_tokenizer, ("metadata", "no source paths")),
    "path-in-tokenizer.json": (
        set_file(TOKENIZER_JSON_FILE, b'{"from": "/home/someone/tok.json"}'),
        ("no source paths",),
    ),
    "path-in-tokenizer_config.json": (
        set_file(TOKENIZER_CONFIG_FILE, b'{"name_or_path": "/home/someone/tok"}'),
        ("no source paths",),
    ),
    "path-in-config": (
        config_with(_name_or_path="/home/someone/run/"),
        ("metadata", "no source paths", "nothing foreign"),
    ),
    "onnx-doc-string": (
        onnx_fault(lambda model: setattr(model.graph, "doc_string", "made on a Monday")),
        ("no source paths", "nothing foreign"),
    ),
    "script-path-in-a-constant": (
        edit_code("packing", "Add the batch axis.", "See /home/someone/notes.txt"),
        ("no source paths", *SCRIPT),
    ),
    # Foreign parts.
    "onnx-producer": (onnx_fault(lambda model: setattr(model, "producer_version", "2.13.0+me")), ("nothing foreign",)),
    "onnx-domain-of-the-model": (onnx_fault(lambda model: setattr(model, "domain", "com.me")), ("nothing foreign",)),
    "onnx-name-that-is-a-text": (
        onnx_fault(lambda model: setattr(model.graph.node[0], "name", "Dear Ann, as agreed: yes!")),
        ("nothing foreign", *ONNX),
    ),
    "onnx-function": (
        onnx_fault(lambda model: model.functions.add(name="f", domain="d")),
        ("nothing foreign",),
    ),
    "onnx-quantization-annotation": (
        onnx_fault(lambda model: model.graph.quantization_annotation.add(tensor_name="logits")),
        ("nothing foreign",),
    ),
    "onnx-training-info": (onnx_fault(lambda model: model.training_info.add()), ("nothing foreign",)),
    "onnx-bytes-behind": (unknown_field, ("nothing foreign",)),
    "script-record": (add_record("archive/extra/notes.txt", b"hello"), ("nothing foreign",)),
    "script-record-twice": (add_record("archive/extra/ferry.json", b"{}"), ("metadata", "nothing foreign")),
    "script-source-positions": (
        add_record("archive/code/x.py.debug_pkl", b"x"),
        ("no source paths", "nothing foreign", *SCRIPT),
    ),
    "script-zip-comment": (zip_comment, ("nothing foreign",)),
    "script-bytes-behind": (append_bytes(TORCHSCRIPT_FILE, b"\0" * 8), ("nothing foreign",)),
    "config-key": (config_with(note="hello"), ("metadata", "nothing foreign")),
    "config-layout": (lambda files: files.update({CONFIG_FILE: files[CONFIG_FILE] + b" "}), ("nothing foreign",)),
    # model.pt2.
    "pt2-two-norms-swapped": (edit_pt2(swap_pt2_norms), ("weights in their places", *PT2)),
    "pt2-a-module-skipped": (
        set_argument("layer_norm", "input", {"as_tensor": {"name": "dropout"}}, 1),
        ("weights in their places", *PT2),
    ),
    "pt2-a-weight-stored-twice": (store_pt2_record_twice, ("weights stored once",)),
    "pt2-epsilon": (
        set_argument("layer_norm", "eps", {"as_float": 1e-06}),
        ("operators' attributes", "numbers", *PT2),
    ),
    "pt2-gelu-by-tanh": (
        set_argument("gelu", "approximate", {"as_string": "tanh"}),
        ("operators' attributes", *PT2),
    ),
    "pt2-relu-for-gelu": (edit_pt2(relu_for_gelu), ("activation", "operators' attributes", *PT2)),
    "pt2-attention-causal": (
        set_argument("scaled_dot_product_attention", "is_causal", {"as_bool": True}),
        ("operators' attributes", *PT2),
    ),
    "pt2-attention-without-mask": (
        set_argument("scaled_dot_product_attention", "attn_mask", {"as_none": True}),
        ("attention", *PT2),
    ),
    "pt2-queries-for-keys": (
        set_argument("scaled_dot_product_attention", "query", {"as_tensor": {"name": "transpose_1"}}),
        ("attention", *PT2),
    ),
    "pt2-embeddings-times-nearly-four": (set_argument("mul", "other", {"as_float": 4.0000001}, 1), ("numbers", *PT2)),
    "pt2-dropout-on": (set_argument("dropout", "train", {"as_bool": True}), ("inference mode", *PT2)),
    "pt2-device": (
        set_argument("arange", "device", {"as_device": {"type": "meta", "index": None}}),
        ("no baked device", *PT2),
    ),
    "pt2-length-frozen": (set_argument("slice", "end", {"as_int": 300}), ("no frozen axis", *PT2)),
    "pt2-length-of-the-example": (pt2_constant_of_example, ("no frozen axis", "no size of the example", *PT2)),
    "pt2-bytes-behind": (append_bytes(PT2_FILE, b"\0" * 8), ("nothing foreign",)),
    "pt2-blanks": (edit_record(PT2_FILE, "models/model.json", lambda data: data + b" \t"), ("nothing foreign",)),
    "pt2-byte-order": (edit_record(PT2_FILE, "byteorder", lambda data: data.upper()), PT2),
    "pt2-metadata-key-twice": (edit_record(PT2_FILE, "extra/ferry.json", key_twice), ("metadata",)),
    "script-metadata-key-twice": (edit_record(TORCHSCRIPT_FILE, "extra/ferry.json", key_twice), ("metadata",)),
    "onnx-metadata-key-twice": (onnx_fault(metadata_key_twice), ("metadata",)),
    "onnx-value-of-nothing": (onnx_fault(tell_of_nothing), ONNX),
    "onnx-value-renamed": (onnx_fault(rename_value), ONNX),
}

# Faults in a model with two layers and written-out causal attention.
CAUSAL_FAULTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "onnx-layers-swapped": (onnx_fault(swap_layers), ("weights in their places", *ONNX)),
    "onnx-positions-compared-backwards": (onnx_fault(compare_positions_backwards), ("attention", *ONNX)),
    "onnx-not-causal": (onnx_fault(drop_causal), ("attention", *ONNX)),
    "onnx-values-for-queries": (onnx_fault(values_for_queries), ("attention", *ONNX)),
    "onnx-softmax-of-columns": (set_attribute("Softmax", "axis", 2), ("operators' attributes", *ONNX)),
    "onnx-no-softmax": (onnx_fault(drop_softmax), ("fused attention", *ONNX)),
    "onnx-scale": (onnx_fault(other_scale), ("numbers", *ONNX)),
    "script-softmax-of-columns": (
        edit_code("models/functional", "torch.softmax(_5, -1)", "torch.softmax(_5, 2)"),
        ("operators' attributes", *SCRIPT),
    ),
    "script-values-for-queries": (edit_code("self_attention", "q, k, v, =", "v, k, q, ="), ("attention", *SCRIPT)),
    "script-positions-compared-backwards": (edit_code("masks", "torch.le(_1, _2)", "torch.le(_2, _1)"), SCRIPT),
    "script-layers-swapped": (
        edit_code("encoder", '_0 = getattr(blocks, "0")', '_0 = getattr(blocks, "1")'),
        ("weights in their places", *SCRIPT),
    ),
}
