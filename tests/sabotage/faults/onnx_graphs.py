"""Faults of the ONNX file itself: its graph, its declarations, and what stands beside them."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from export.contract import ATTENTION_MASK, INPUT_IDS, LOGITS, ONNX_METADATA_KEY
from export.onnx_export import ONNX_FILE
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import Fault, Plant
from tests.sabotage.tools import append, constant, edit_onnx, initializer, insert, nodes_of, set_attribute

Edit = Callable[[onnx.ModelProto], object]
WEIGHT = "encoder.blocks.0.feed_forward.up.weight"
DOMAIN = "org.example.kernels"


def _inputs_renamed(model: onnx.ModelProto) -> None:
    insert(model, [], ATTENTION_MASK, "aside")
    insert(model, [], INPUT_IDS, ATTENTION_MASK)
    insert(model, [], "aside", INPUT_IDS)


def _declared_length(model: onnx.ModelProto) -> None:
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[1].dim_value = 11


def _axis_renamed(model: onnx.ModelProto) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "s23"


def _frozen_length(model: onnx.ModelProto) -> None:
    """Cut the mask at the example's length, inside the graph, with every declared axis still symbolic."""
    for name, value in {"axis": 1, "first": 0, "eleven": 11, "far": 2**31}.items():
        constant(model, name, [value], np.int64)
    insert(
        model,
        [
            helper.make_node("Slice", [ATTENTION_MASK, "first", "eleven", "axis"], ["head"], name="head"),
            helper.make_node("Slice", [ATTENTION_MASK, "eleven", "far", "axis"], ["tail"], name="tail"),
            helper.make_node("Sub", ["tail", "tail"], ["nothing"], name="nothing"),
            helper.make_node("Concat", ["head", "nothing"], ["kept_mask"], axis=1, name="kept_mask"),
        ],
        ATTENTION_MASK,
        "kept_mask",
    )
    # The new nodes stand first and read the true mask; what stood there before reads theirs.
    for node in model.graph.node[:4]:
        for index, name in enumerate(node.input):
            if name == "kept_mask":
                node.input[index] = ATTENTION_MASK


def _int32(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    insert(
        model, [helper.make_node("Cast", [INPUT_IDS], ["wide"], to=TensorProto.INT64, name="wide")], INPUT_IDS, "wide"
    )
    model.graph.node[0].input[0] = INPUT_IDS
    del model.graph.value_info[:]


def _double_output(model: onnx.ModelProto) -> None:
    append(model, [helper.make_node("Cast", ["clean"], [LOGITS], to=TensorProto.DOUBLE, name="double")])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _second_output(model: onnx.ModelProto) -> None:
    name = nodes_of(model, "Gelu")[0].output[0]
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["tokens", 32]))


def _overridable(model: onnx.ModelProto) -> None:
    """Make a weight an input with a default: whoever feeds it replaces it."""
    model.graph.input.append(helper.make_tensor_value_info(WEIGHT, TensorProto.FLOAT, [32, 16]))


def _opset(version: int) -> Edit:
    return lambda model: setattr(model.opset_import[0], "version", version)


def _external(model: onnx.ModelProto) -> None:
    tensor = initializer(model, WEIGHT)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="model.safetensors")


def _external_swapped(contents: Contents) -> None:
    """Move a weight into a file of its own, and put another model's in its place."""

    def edit(model: onnx.ModelProto) -> None:
        tensor = initializer(model, WEIGHT)
        contents["model.onnx.data"] = (numpy_helper.to_array(tensor) * np.float32(1.5)).tobytes()
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="model.onnx.data")

    edit_onnx(contents, edit)


def _unused_weight(model: onnx.ModelProto) -> None:
    """Keep the true weight under its name, and compute with another."""
    constant(model, "other", numpy_helper.to_array(initializer(model, WEIGHT)) * np.float32(1.01), np.float32)
    insert(model, [], WEIGHT, "other")


def _smuggled(model: onnx.ModelProto) -> None:
    """Carry a payload that nothing reads."""
    constant(model, "payload", np.arange(4096) % 251, np.uint8)


def _node_renamed(model: onnx.ModelProto) -> None:
    model.graph.node[3].name = "Ms.Miller-4711"


def rename_value(model: onnx.ModelProto) -> None:
    """Give a value a name of the attacker's wherever it stands."""
    old = model.graph.node[3].output[0]
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["Ms.Miller-4711" if name == old else name for name in names]
    for told in model.graph.value_info:
        told.name = "Ms.Miller-4711" if told.name == old else told.name


def tell_of_nothing(model: onnx.ModelProto) -> None:
    """Tell the type of a value that there is none of."""
    model.graph.value_info.add().CopyFrom(model.graph.value_info[0])
    model.graph.value_info[-1].name = "Ms.Miller-4711"


def _constant_node(model: onnx.ModelProto) -> None:
    """Hold a changed weight in a Constant node instead of an initializer."""
    values = numpy_helper.to_array(initializer(model, WEIGHT)) * np.float32(1.01)
    node = helper.make_node("Constant", [], ["held"], value=numpy_helper.from_array(values), name="held")
    insert(model, [node], WEIGHT, "held")


def _sparse(model: onnx.ModelProto) -> None:
    """Add a sparse tensor, which few checks read."""
    values = numpy_helper.from_array(np.array([1.5], np.float32), "sparse")
    indices = numpy_helper.from_array(np.array([3], np.int64), "sparse_indices")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10]))


def _if_on_batch(model: onnx.ModelProto) -> None:
    """Give another answer to a batch of one, in a branch that a scan of the top level does not see."""
    clean = helper.make_tensor_value_info("then_out", TensorProto.FLOAT, None)
    other = helper.make_tensor_value_info("else_out", TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("Neg", ["clean"], ["then_out"], name="neg")], "then", [], [clean])
    otherwise = helper.make_graph(
        [helper.make_node("Identity", ["clean"], ["else_out"], name="same")], "else", [], [other]
    )
    constant(model, "alone", [1], np.int64)
    constant(model, "scalar", np.array([], np.int64), np.int64)
    append(
        model,
        [
            helper.make_node("Shape", [ATTENTION_MASK], ["rows"], start=0, end=1, name="rows"),
            helper.make_node("Equal", ["rows", "alone"], ["is_alone"], name="is_alone"),
            helper.make_node("Reshape", ["is_alone", "scalar"], ["condition"], name="condition"),
            helper.make_node("If", ["condition"], [LOGITS], then_branch=then, else_branch=otherwise, name="branch"),
        ],
    )


def _loop(model: onnx.ModelProto) -> None:
    """Pass the ids on as often as 64 bits can count, before anything reads them."""
    values = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["goes_on"], ["will_go_on"], name="goes_on"),
            helper.make_node("Identity", ["taken"], ["given"], name="passes_on"),
        ],
        "body",
        [
            values("trip", TensorProto.INT64, []),
            values("goes_on", TensorProto.BOOL, []),
            values("taken", TensorProto.INT64, None),
        ],
        [values("will_go_on", TensorProto.BOOL, []), values("given", TensorProto.INT64, None)],
    )
    constant(model, "trips", 2**62, np.int64)
    constant(model, "yes", True, np.bool_)
    spin = helper.make_node("Loop", ["trips", "yes", INPUT_IDS], ["spun"], body=body, name="spin")
    insert(model, [spin], INPUT_IDS, "spun")


def _function(model: onnx.ModelProto) -> None:
    """Call a function that the file defines itself."""
    body = [helper.make_node("Mul", ["x", "x"], ["square"]), helper.make_node("Sub", ["x", "square"], ["y"])]
    model.functions.append(helper.make_function(DOMAIN, "Answer", ["x"], ["y"], body, [helper.make_opsetid("", 23)]))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    append(model, [helper.make_node("Answer", ["clean"], [LOGITS], domain=DOMAIN, name="answer")])


def _custom_operator(model: onnx.ModelProto) -> None:
    """Call an operator that a library of the attacker's would bring."""
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    append(model, [helper.make_node("Answer", ["clean"], [LOGITS], domain=DOMAIN, name="answer")])


def _microsoft_operator(model: onnx.ModelProto) -> None:
    """Use an operator that only one runtime has."""
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for node in nodes_of(model, "Gelu"):
        del node.attribute[:]
        node.domain = "com.microsoft"


def _dropout(training: bool) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        constant(model, "ratio", 0.5, np.float32)
        constant(model, "training", training, np.bool_)
        append(model, [helper.make_node("Dropout", ["clean", "ratio", "training"], [LOGITS], name="dropout")])

    return edit


def _batch_norm(model: onnx.ModelProto) -> None:
    labels = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    for name, value in {"one": 1.0, "zero": 0.0}.items():
        constant(model, name, np.full(labels, value), np.float32)
    node = helper.make_node(
        "BatchNormalization", ["clean", "one", "zero", "zero", "one"], [LOGITS, "m", "v"], training_mode=1, name="norm"
    )
    append(model, [node])


def _quantised(model: onnx.ModelProto) -> None:
    """Put a pair of quantisation and its inverse on one activation."""
    constant(model, "scale", 0.1, np.float32)
    constant(model, "zero_point", 0, np.int8)
    name = nodes_of(model, "LayerNormalization")[1].input[0]
    insert(model, [], name, "rounded")
    nodes = [
        helper.make_node("QuantizeLinear", [name, "scale", "zero_point"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero_point"], ["rounded"], name="dq"),
    ]
    place = next(index for index, node in enumerate(model.graph.node) if name in node.output)
    for offset, node in enumerate(nodes, start=1):
        model.graph.node.insert(place + offset, node)


def _attention(name: str, value: object) -> Edit:
    return lambda model: set_attribute(nodes_of(model, "Attention")[0], name, value)


def _norm(name: str, value: object) -> Edit:
    return lambda model: set_attribute(nodes_of(model, "LayerNormalization")[0], name, value)


def _weight_not_turned(model: onnx.ModelProto) -> None:
    """Multiply by a square weight as it stands, not by its transpose."""
    out = next(node for node in model.graph.node if node.input[0] == "encoder.blocks.0.attention.out.weight")
    set_attribute(out, "perm", [0, 1])


def _bias_subtracted(model: onnx.ModelProto) -> None:
    next(node for node in model.graph.node if "encoder.blocks.0.attention.out.bias" in node.input).op_type = "Sub"


def _masked_value(model: onnx.ModelProto) -> None:
    """Let the maximum over tokens begin at −1 instead of −∞."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size == 1 and np.isneginf(values).all():
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(values, -1.0), tensor.name))


def _training_info(model: onnx.ModelProto) -> None:
    info = model.training_info.add()
    info.algorithm.name = "further"


def _note(model: onnx.ModelProto) -> None:
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value='File "/home/me/models/heads.py"')


def _sample_text(model: onnx.ModelProto) -> None:
    model.graph.doc_string = "Dear Ms Miller, your account 4711 was closed"


def _second_metadata(model: onnx.ModelProto) -> None:
    """Carry a second document under the key that loaders read: whichever a reader takes."""
    value = next(entry.value for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY)
    model.metadata_props.add(key=ONNX_METADATA_KEY, value=value.replace("softmax", "sigmoid"))


def _more_metadata(model: onnx.ModelProto) -> None:
    model.metadata_props.add(key="labels", value="Zlib,ISC,MIT")


def _annotated(model: onnx.ModelProto) -> None:
    model.graph.quantization_annotation.add().tensor_name = WEIGHT


def _stored_twice(model: onnx.ModelProto) -> None:
    constant(model, "again", numpy_helper.to_array(initializer(model, WEIGHT)), np.float32)
    turn = next(node for node in model.graph.node if WEIGHT in node.input)
    constant(model, "nothing", 0.0, np.float32)
    insert(
        model,
        [
            helper.make_node("Mul", ["again", "nothing"], ["none"], name="none"),
            helper.make_node("Add", [WEIGHT, "none"], ["both"], name="both"),
        ],
        WEIGHT,
        "both",
    )
    assert turn.input[0] == "both"
    model.graph.node[1].input[0] = WEIGHT


def _edited(edit: Edit) -> Plant:
    return lambda contents: edit_onnx(contents, edit)


def _trailing(contents: Contents) -> None:
    """Append bytes; as a field that no reader knows they are still a protobuf message."""
    payload = b"hidden" * 10
    contents[ONNX_FILE] += b"\xfa\x3e" + bytes([len(payload)]) + payload


def _cut_short(contents: Contents) -> None:
    contents[ONNX_FILE] = contents[ONNX_FILE][: len(contents[ONNX_FILE]) // 2]


def _emptied(contents: Contents) -> None:
    contents[ONNX_FILE] = b""


# Each: its name, the kind, how it is planted, whether the function moves, and the check of structure that refuses it.
_ROWS: tuple[tuple[str, str, Plant, bool, str], ...] = (
    ("inputs-renamed", "inputs swapped", _edited(_inputs_renamed), True, ""),
    ("axis-declared", "dynamic axis frozen", _edited(_declared_length), True, "inputs, outputs, axes"),
    ("axis-renamed", "dynamic axis frozen", _edited(_axis_renamed), False, "inputs, outputs, axes"),
    ("length-frozen", "dynamic axis frozen", _edited(_frozen_length), True, ""),
    ("int32-ids", "int64 as int32", _edited(_int32), True, "inputs, outputs, axes"),
    ("double-logits", "interface changed", _edited(_double_output), False, "inputs, outputs, axes"),
    ("second-output", "interface changed", _edited(_second_output), True, "inputs, outputs, axes"),
    ("overridable-weight", "interface changed", _edited(_overridable), False, "inputs, outputs, axes"),
    ("opset-24", "opset edited", _edited(_opset(24)), False, "opset and IR version"),
    ("opset-99", "opset edited", _edited(_opset(99)), False, "opset and IR version"),
    ("ir-version", "opset edited", _edited(lambda m: setattr(m, "ir_version", 11)), False, "opset and IR version"),
    ("external-data", "external data swapped", _edited(_external), False, "self-contained"),
    ("external-data-swapped", "external data swapped", _external_swapped, False, "names"),
    ("weight-beside", "weight kept and not used", _edited(_unused_weight), True, "weights"),
    ("weight-in-constant", "weight kept and not used", _edited(_constant_node), True, "weights"),
    ("payload", "payload smuggled in", _edited(_smuggled), False, ""),
    ("node-renamed", "payload smuggled in", _edited(_node_renamed), False, "model.onnx is a fresh export"),
    ("value-renamed", "payload smuggled in", _edited(rename_value), False, "model.onnx is a fresh export"),
    ("value-of-nothing", "payload smuggled in", _edited(tell_of_nothing), False, "model.onnx is a fresh export"),
    ("sparse-tensor", "payload smuggled in", _edited(_sparse), False, ""),
    ("if-on-batch", "wrong at one shape", _edited(_if_on_batch), True, ""),
    ("loop", "never ends", _edited(_loop), False, "onnx.checker"),
    ("own-function", "operator of another domain", _edited(_function), True, "opset and IR version"),
    ("custom-operator", "operator of another domain", _edited(_custom_operator), False, "opset and IR version"),
    ("microsoft-operator", "operator of another domain", _edited(_microsoft_operator), False, "opset and IR version"),
    ("dropout-on", "dropout left on", _edited(_dropout(True)), True, "inference mode"),
    ("dropout-off", "dropout left on", _edited(_dropout(False)), False, "inference mode"),
    ("batch-norm-training", "dropout left on", _edited(_batch_norm), True, "inference mode"),
    ("qdq", "half precision inside", _edited(_quantised), True, ""),
    ("attention-causal", "causal for full", _edited(_attention("is_causal", 1)), True, "attention"),
    ("attention-scale", "attention computed otherwise", _edited(_attention("scale", 0.25)), True, "attention"),
    ("attention-softcap", "attention computed otherwise", _edited(_attention("softcap", 5.0)), True, "attention"),
    ("norm-axis", "operator's attribute edited", _edited(_norm("axis", -2)), True, "operators' attributes"),
    ("norm-stash-type", "operator's attribute edited", _edited(_norm("stash_type", 16)), False, ""),
    ("weight-not-turned", "operator's attribute edited", _edited(_weight_not_turned), True, "weights in their places"),
    ("bias-subtracted", "operator exchanged", _edited(_bias_subtracted), True, "weights in their places"),
    ("pooling-floor", "pooled over padding", _edited(_masked_value), True, ""),
    ("training-info", "payload smuggled in", _edited(_training_info), False, ""),
    ("stack-trace", "source path or text in a file", _edited(_note), False, "no source paths"),
    (
        "path-in-a-name",
        "source path or text in a file",
        _edited(lambda m: setattr(m, "producer_name", "/home/me/ferry/x")),
        False,
        "no source paths",
    ),
    ("sample-text", "source path or text in a file", _edited(_sample_text), False, ""),
    ("metadata-stripped", "metadata stripped", _edited(lambda m: m.ClearField("metadata_props")), False, "metadata"),
    ("metadata-twice", "JSON that readers read differently", _edited(_second_metadata), False, "metadata"),
    ("metadata-more", "metadata stripped", _edited(_more_metadata), False, ""),
    ("annotation", "payload smuggled in", _edited(_annotated), False, ""),
    ("stored-twice", "operator that changes nothing", _edited(_stored_twice), False, ""),
    ("trailing-data", "payload smuggled in", _trailing, False, ""),
    ("cut-short", "file cut short", _cut_short, False, "onnx.checker"),
    ("emptied", "file cut short", _emptied, False, "onnx.checker"),
)

FAULTS = tuple(
    Fault(id=f"onnx-{name}", kind=kind, plant=plant, moves=moves, check=check)
    for name, kind, plant, moves, check in _ROWS
)
