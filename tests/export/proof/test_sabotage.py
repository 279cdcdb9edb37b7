"""Planted faults, each in a copy of good files: the proof must refuse it, where it sits and nowhere else."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from export.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    LOGITS,
    ONNX_METADATA_KEY,
    TOKEN_CLASSIFICATION,
    canonical_json,
)
from export.files import dump_json
from export.model import CONFIG_FILE, WEIGHTS_FILE, read_weights, serialise_weights
from export.onnx_export import ONNX_FILE
from export.proof.prove import prove
from export.proof.runtimes import BACKENDS
from export.torchscript import TORCHSCRIPT_FILE, export_torchscript
from tests.export.proof.subjects import build_files, eager_model, make_batches, metadata_of, prove_files
from tests.sabotage.tools import append, edit_onnx, insert

Files = dict[str, bytes]
WEIGHT = "encoder.blocks.0.feed_forward.up.weight"


def script(files: Files, model: nn.Module) -> None:
    files[TORCHSCRIPT_FILE] = export_torchscript(model, metadata_of(files))


def edit_tensor(model: onnx.ModelProto, name: str, edit: Callable[[np.ndarray], np.ndarray]) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    values = np.asarray(edit(numpy_helper.to_array(tensor).copy()), np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def half(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).astype(np.float32)


def scaled_weight_onnx(files: Files) -> None:
    edit_onnx(files, lambda model: edit_tensor(model, WEIGHT, lambda values: values * 1.01))


def one_bit_onnx(files: Files) -> None:
    def flip(values: np.ndarray) -> np.ndarray:
        values.view(np.uint32).flat[0] ^= 1
        return values

    edit_onnx(files, lambda model: edit_tensor(model, WEIGHT, flip))


def scaled_weight_torchscript(files: Files) -> None:
    model = eager_model(files)
    model.get_parameter(WEIGHT).mul_(1.01)
    script(files, model)


def half_weights_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        for name in read_weights(files[WEIGHTS_FILE]):
            edit_tensor(model, name, half)

    edit_onnx(files, edit)


def half_weights_torchscript(files: Files) -> None:
    script(files, eager_model(files).half().float())


def epsilon_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
        next(attribute for attribute in norm.attribute if attribute.name == "epsilon").f = 1e-6

    edit_onnx(files, edit)


def epsilon_torchscript(files: Files) -> None:
    model = eager_model(files)
    next(module for module in model.modules() if isinstance(module, nn.LayerNorm)).eps = 1e-6
    script(files, model)


def ignored_mask_onnx(files: Files) -> None:
    one = numpy_helper.from_array(np.ones(1, np.int64))
    nodes = [
        helper.make_node("Shape", [ATTENTION_MASK], ["mask_shape"], name="mask_shape"),
        helper.make_node("ConstantOfShape", ["mask_shape"], ["all_ones"], name="all_ones", value=one),
    ]
    edit_onnx(
        files,
        lambda model: (insert(model, nodes[1:], ATTENTION_MASK, "all_ones"), model.graph.node.insert(0, nodes[0]))[0],
    )


def inverted_mask_onnx(files: Files) -> None:
    one = numpy_helper.from_array(np.array(1, np.int64), "one")
    node = helper.make_node("Sub", ["one", ATTENTION_MASK], ["inverted"], name="inverted")

    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(one)
        insert(model, [], ATTENTION_MASK, "inverted")
        model.graph.node.insert(0, node)

    edit_onnx(files, edit)


def swapped_inputs_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        insert(model, [], ATTENTION_MASK, "aside")
        insert(model, [], INPUT_IDS, ATTENTION_MASK)
        insert(model, [], "aside", INPUT_IDS)

    edit_onnx(files, edit)


class IgnoresMask(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, torch.ones_like(attention_mask))


class FrozenLength(nn.Module):
    """What tracing does to a slice: the example's length stays."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids[:, :11], attention_mask[:, :11])


class FrozenBatch(nn.Module):
    """What a baked batch size does: one answer for everybody beyond it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids[:5], attention_mask[:5])


class EmptyRowIsNaN(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        count = attention_mask.sum(1, keepdim=True)
        return self.model(input_ids, attention_mask) * count / count


class SeesPadding(nn.Module):
    """Adds a trace of the last id, masked or not."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask) + 1e-3 * input_ids[:, -1:]


class SeesCompany(nn.Module):
    """Scales by the batch, as a quantisation scale chosen at run time does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.model(input_ids, attention_mask)
        scale = logits.abs().max() / 127
        return torch.round(logits / scale) * scale


class ShiftsTokens(nn.Module):
    """Answers each token with its neighbour's logits, as when packed tokens are put back one place off."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask).roll(1, 1)


class AnswersPadding(nn.Module):
    """Leaves something at padding, where zeros are promised."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask) + 1e-3 * (1 - attention_mask).unsqueeze(2)


class TokenSeesPadding(nn.Module):
    """Adds a trace of the last id, masked or not, at every token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        trace = 1e-3 * (input_ids[:, -1:] * attention_mask).unsqueeze(2)
        return self.model(input_ids, attention_mask) + trace


def wrapped(wrapper: Callable[[nn.Module], nn.Module]) -> Callable[[Files], None]:
    return lambda files: script(files, wrapper(eager_model(files)).eval())


def frozen_axis_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[1].dim_value = 11

    edit_onnx(files, edit)


def frozen_length_onnx(files: Files) -> None:
    """Cut the mask at the example's length, inside the graph, with every declared axis still symbolic."""

    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.extend(
            numpy_helper.from_array(np.array(values, np.int64), name)
            for name, values in {"axis": [1], "first": [0], "eleven": [11]}.items()
        )
        insert(model, [], ATTENTION_MASK, "kept_mask")
        nodes = [
            helper.make_node("Slice", [ATTENTION_MASK, "first", "eleven", "axis"], ["head"], name="head"),
            helper.make_node("Slice", [ATTENTION_MASK, "eleven", "far", "axis"], ["tail"], name="tail"),
            helper.make_node("Sub", ["tail", "tail"], ["nothing"], name="nothing"),
            helper.make_node("Concat", ["head", "nothing"], ["kept_mask"], axis=1, name="kept_mask"),
        ]
        model.graph.initializer.append(numpy_helper.from_array(np.array([2**31], np.int64), "far"))
        for position, node in enumerate(nodes):
            model.graph.node.insert(position, node)

    edit_onnx(files, edit)


def nan_for_empty_rows_onnx(files: Files) -> None:
    nodes = [
        helper.make_node("ReduceMax", [ATTENTION_MASK, "last_axis"], ["any"], keepdims=1, name="any"),
        helper.make_node("Cast", ["any"], ["some"], to=TensorProto.FLOAT, name="some"),
        helper.make_node("Mul", ["clean", "some"], ["times"], name="times"),
        helper.make_node("Div", ["times", "some"], [LOGITS], name="divided"),
    ]

    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "last_axis"))
        append(model, nodes)

    edit_onnx(files, edit)


def softmax_onnx(files: Files) -> None:
    edit_onnx(
        files, lambda model: append(model, [helper.make_node("Softmax", ["clean"], [LOGITS], axis=1, name="softmax")])
    )


def dropout_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "ratio"))
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), "training"))
        append(model, [helper.make_node("Dropout", ["clean", "ratio", "training"], [LOGITS], name="dropout")])

    edit_onnx(files, edit)


def dropout_torchscript(files: Files) -> None:
    script(files, eager_model(files).train())


def gelu_by_tanh_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            if node.op_type == "Gelu":
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("approximate", "tanh"))

    edit_onnx(files, edit)


def int32_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
        insert(model, [], INPUT_IDS, "wide")
        model.graph.node.insert(0, helper.make_node("Cast", [INPUT_IDS], ["wide"], to=TensorProto.INT64, name="wide"))
        del model.graph.value_info[:]

    edit_onnx(files, edit)


def unused_weight_onnx(files: Files) -> None:
    """Keep the true weight under its name, and compute with another."""

    def edit(model: onnx.ModelProto) -> None:
        true = next(tensor for tensor in model.graph.initializer if tensor.name == WEIGHT)
        model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(true) * np.float32(1.01), "other"))
        insert(model, [], WEIGHT, "other")

    edit_onnx(files, edit)


def other_run_onnx(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        for name, weight in read_weights(build_weights(files, seed=1)[WEIGHTS_FILE]).items():
            edit_tensor(model, name, lambda _, weight=weight: weight.numpy())

    edit_onnx(files, edit)


def other_run_torchscript(files: Files) -> None:
    script(files, eager_model(build_weights(files, seed=1)))


def build_weights(files: Files, *, seed: int) -> Files:
    model = eager_model(files)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return {**files, WEIGHTS_FILE: serialise_weights(model)}


def other_table_torchscript(files: Files) -> None:
    model = eager_model(files)
    table = model.get_buffer("encoder.position.table")
    table[-1, 0] += 2**-20
    script(files, model)


def set_metadata(files: Files, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the metadata in both files alike."""
    metadata = metadata_of(files)
    edit(metadata)
    edit_onnx(files, lambda model: helper.set_model_props(model, {ONNX_METADATA_KEY: canonical_json(metadata)}))
    files[TORCHSCRIPT_FILE] = export_torchscript(eager_model(files), metadata)


def swapped_labels(files: Files) -> None:
    set_metadata(files, lambda metadata: metadata["labels"].reverse())


def wrong_max_length(files: Files) -> None:
    set_metadata(files, lambda metadata: metadata["limits"]["sequence_length"].update(max=512))


def other_activation(files: Files) -> None:
    set_metadata(files, lambda metadata: metadata.update(activation="sigmoid"))


def other_temperature(files: Files) -> None:
    set_metadata(files, lambda metadata: metadata.update(temperature=1.0))


def other_threshold(files: Files) -> None:
    set_metadata(files, lambda metadata: metadata.update(threshold=0.0))


def stripped_metadata_onnx(files: Files) -> None:
    edit_onnx(files, lambda model: model.ClearField("metadata_props"))


def other_metadata_in_one_file(files: Files) -> None:
    metadata = metadata_of(files)
    metadata["pooling"]["kind"] = "first"
    files[TORCHSCRIPT_FILE] = export_torchscript(eager_model(files), metadata)


def swapped_label_order_in_config(files: Files) -> None:
    config = json.loads(files[CONFIG_FILE])
    config["id2label"]["0"], config["id2label"]["1"] = config["id2label"]["1"], config["id2label"]["0"]
    files[CONFIG_FILE] = dump_json(config).encode()


def other_tokenizer(files: Files) -> None:
    files["tokenizer.model"] = b"stands for another"


def edited_opset(files: Files) -> None:
    edit_onnx(files, lambda model: model.opset_import[0].__setattr__("version", 24))


def edited_ir_version(files: Files) -> None:
    edit_onnx(files, lambda model: model.__setattr__("ir_version", 11))


def external_data(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        tensor = next(tensor for tensor in model.graph.initializer if tensor.name == WEIGHT)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="model.data")

    edit_onnx(files, edit)


def stack_trace(files: Files) -> None:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.node[0].metadata_props.add(
            key="pkg.torch.onnx.stack_trace", value='File "/home/me/models/heads.py"'
        )

    edit_onnx(files, edit)


def path_in_a_name(files: Files) -> None:
    edit_onnx(files, lambda model: model.__setattr__("producer_name", "built in /home/me/ferry/export"))


def unstripped_torchscript(files: Files) -> None:
    buffer = io.BytesIO()
    extra = {"ferry.json": canonical_json(metadata_of(files))}
    torch.jit.save(torch.jit.script(eager_model(files)), buffer, _extra_files=extra)
    assert any(name.endswith(".debug_pkl") for name in zipfile.ZipFile(buffer).namelist())
    files[TORCHSCRIPT_FILE] = buffer.getvalue()


def truncated(name: str) -> Callable[[Files], None]:
    return lambda files: files.update({name: files[name][: len(files[name]) // 2]})


# Which backends read a file.
READERS = {
    ONNX_FILE: {"onnxruntime-cpu-off", "onnxruntime-cpu-all"},
    TORCHSCRIPT_FILE: {"torchscript"},
    CONFIG_FILE: set[str](),
}


@dataclass(frozen=True)
class Fault:
    """A fault: the file it sits in, whether the numbers of every backend that reads it refuse it, which checks do."""

    file: str
    plant: Callable[[Files], None]
    numeric: bool
    checks: set[str] = field(default_factory=set)


def in_onnx(plant: Callable[[Files], None], numeric: bool, *checks: str) -> Fault:
    return Fault(ONNX_FILE, plant, numeric, set(checks))


def in_torchscript(plant: Callable[[Files], None], numeric: bool, *checks: str) -> Fault:
    return Fault(TORCHSCRIPT_FILE, plant, numeric, set(checks))


FAULTS = {
    "onnx-weight-x1.01": in_onnx(scaled_weight_onnx, True, "weights"),
    "onnx-one-bit-of-a-weight": in_onnx(one_bit_onnx, False, "weights"),
    "onnx-weights-as-half": in_onnx(half_weights_onnx, True, "weights"),
    "onnx-weight-beside-the-true-one": in_onnx(unused_weight_onnx, True, "weights"),
    "onnx-another-run": in_onnx(other_run_onnx, True, "weights"),
    "onnx-epsilon": in_onnx(epsilon_onnx, False, "LayerNorm epsilon"),
    "onnx-gelu-by-tanh": in_onnx(gelu_by_tanh_onnx, True),
    "onnx-mask-ignored": in_onnx(ignored_mask_onnx, True),
    "onnx-mask-inverted": in_onnx(inverted_mask_onnx, True),
    "onnx-inputs-swapped": in_onnx(swapped_inputs_onnx, True),
    "onnx-axis-frozen": in_onnx(frozen_axis_onnx, True, "inputs, outputs, axes"),
    "onnx-length-frozen-inside": in_onnx(frozen_length_onnx, True),
    "onnx-nan-for-empty-rows": in_onnx(nan_for_empty_rows_onnx, True),
    "onnx-softmax": in_onnx(softmax_onnx, True),
    "onnx-dropout-on": in_onnx(dropout_onnx, False, "inference mode"),
    "onnx-int64-as-int32": in_onnx(int32_onnx, True, "inputs, outputs, axes"),
    "onnx-opset": in_onnx(edited_opset, False, "opset and IR version"),
    "onnx-ir-version": in_onnx(edited_ir_version, False, "opset and IR version"),
    "onnx-external-data": in_onnx(external_data, True, "self-contained"),
    "onnx-metadata-stripped": in_onnx(stripped_metadata_onnx, False, "metadata"),
    "onnx-stack-trace": in_onnx(stack_trace, False, "no source paths"),
    "onnx-path-in-a-name": in_onnx(path_in_a_name, False, "no source paths"),
    "onnx-cut-short": in_onnx(truncated(ONNX_FILE), True, "onnx.checker"),
    "torchscript-weight-x1.01": in_torchscript(scaled_weight_torchscript, True, "weights"),
    "torchscript-weights-as-half": in_torchscript(half_weights_torchscript, True, "weights", "tables"),
    "torchscript-another-run": in_torchscript(other_run_torchscript, True, "weights"),
    "torchscript-epsilon": in_torchscript(epsilon_torchscript, False, "LayerNorm epsilon"),
    "torchscript-another-position-table": in_torchscript(other_table_torchscript, False, "tables"),
    "torchscript-mask-ignored": in_torchscript(wrapped(IgnoresMask), True, "weights", "tables"),
    "torchscript-length-frozen": in_torchscript(wrapped(FrozenLength), True),
    "torchscript-batch-frozen": in_torchscript(wrapped(FrozenBatch), True),
    "torchscript-nan-for-empty-rows": in_torchscript(wrapped(EmptyRowIsNaN), True),
    "torchscript-sees-padding": in_torchscript(wrapped(SeesPadding), True),
    "torchscript-sees-company": in_torchscript(wrapped(SeesCompany), True),
    "torchscript-dropout-on": in_torchscript(dropout_torchscript, True, "inference mode"),
    "torchscript-metadata": in_torchscript(other_metadata_in_one_file, False, "metadata"),
    "torchscript-source-positions": in_torchscript(unstripped_torchscript, False, "no source paths"),
    "torchscript-cut-short": in_torchscript(truncated(TORCHSCRIPT_FILE), True, "inference mode"),
    "labels-swapped-in-metadata": Fault(CONFIG_FILE, swapped_labels, False, {"metadata"}),
    "labels-swapped-in-config": Fault(CONFIG_FILE, swapped_label_order_in_config, False, {"metadata"}),
    "wrong-max-len": Fault(CONFIG_FILE, wrong_max_length, False, {"metadata"}),
    "another-activation": Fault(CONFIG_FILE, other_activation, False, {"metadata"}),
    "another-temperature": Fault(CONFIG_FILE, other_temperature, False, {"metadata"}),
    "another-threshold": Fault(CONFIG_FILE, other_threshold, False, {"metadata"}),
    "another-tokenizer": Fault(CONFIG_FILE, other_tokenizer, False, {"metadata"}),
}


@pytest.fixture(scope="module")
def good_tagger() -> Files:
    return build_files(task=TOKEN_CLASSIFICATION)


@pytest.mark.parametrize("wrapper", [ShiftsTokens, AnswersPadding, TokenSeesPadding, SeesCompany])
def test_a_fault_planted_in_a_tagger_is_refused(good_tagger: Files, wrapper: Callable[[nn.Module], nn.Module]) -> None:
    files = dict(good_tagger)
    script(files, wrapper(eager_model(files)).eval())
    failed = {failure.backend for failure in prove_files(files, good_tagger).all_failures} - {"files"}
    assert failed == {"torchscript"}


def test_the_law_of_padding_sees_tokens(good_tagger: Files) -> None:
    files = dict(good_tagger)
    script(files, TokenSeesPadding(eager_model(files)).eval())
    broken = {part.law for part in prove_files(files, good_tagger).invariances if part.failures}
    # Padding on the left leaves the last id where it is.
    assert broken == {"right padding", "holes"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_refused(name: str, good: Files) -> None:
    fault = FAULTS[name]
    files = dict(good)
    fault.plant(files)
    assert files != good
    proof = prove_files(files, good)
    assert not proof.holds
    failed = {failure.backend for failure in proof.all_failures} - {"files"}
    if fault.numeric:
        assert failed == READERS[fault.file]
    # What reads other files is as good as it was.
    assert failed <= READERS[fault.file]
    assert fault.checks <= {check.name for check in proof.checks if check.problems}


def test_the_laws_see_what_depends_on_padding_and_on_company(good: Files) -> None:
    for wrapper, laws in (
        (SeesPadding, {"right padding", "left padding", "holes"}),
        (SeesCompany, {"company", "right padding", "left padding", "holes"}),
    ):
        files = dict(good)
        script(files, wrapper(eager_model(files)).eval())
        broken = {part.law for part in prove_files(files, good).invariances if part.failures}
        assert broken
        assert broken <= laws


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"seed": 2, "position": "learned", "norm": "post", "attention": "full", "num_layers": 2},
        {"seed": 4, "task": TOKEN_CLASSIFICATION, "position": "learned", "labels": ["O", "B-x", "I-x"]},
        {"seed": 3, "max_len": 3, "pooling": "first", "labels": ["yes", "no"], "activation": "relu"},
    ],
    ids=lambda change: "-".join(f"{key}-{value}" for key, value in change.items()),
)
def test_a_good_model_is_accepted(change: dict[str, Any]) -> None:
    proof = prove_files(build_files(**change))
    assert proof.all_failures == []
    assert proof.holds


def test_weights_that_do_not_fit_the_configuration_are_one_failure_not_a_crash(good: Files) -> None:
    config = json.loads(good[CONFIG_FILE])
    config["encoder"]["num_layers"] = 2
    proof = prove_files({**good, CONFIG_FILE: dump_json(config).encode()}, good)
    assert proof.parity is None
    assert "does not fit" in " ".join(failure.reason for failure in proof.failures)


def test_a_wrong_recorded_accuracy_is_refused(good: Files) -> None:
    batches, accuracy = make_batches(good)
    proof = prove(good.__getitem__, batches, backends=BACKENDS[:1], recorded_accuracy=accuracy - 0.01)
    assert [failure.where for failure in proof.all_failures] == ["test split"]
