"""model.pt2: what it answers, what it carries, and what is refused before torch would run it."""

import io
import json
import pickle
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from export.capture import capture
from export.contract import TEXT_CLASSIFICATION, TOKEN_CLASSIFICATION, Limits
from export.model import build_model, describe_model
from export.pt2 import export_pt2, load_pt2, read_pt2
from models.config import EncoderConfig
from tests.export.pt2_edits import CONSTANTS, GRAPH, WEIGHTS, edit_json, edit_records, nodes_of, read_records

LIMITS = Limits(max_length=19, vocab_size=40)
METADATA = {"format": 3, "labels": ["ä", "b"], "note": "carried as it is"}


@cache
def model(task: str = TEXT_CLASSIFICATION, attention: str = "sdpa", position: str = "sinusoidal") -> nn.Module:
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=LIMITS.vocab_size,
        max_len=LIMITS.max_length,
        dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        attention=attention,
        position=position,
    )
    pooling = "mean_max" if task == TEXT_CLASSIFICATION else None
    config = describe_model(task, encoder, pooling=pooling, head="mlp", labels=list("abcde"))
    built: nn.Module = build_model(config).eval().requires_grad_(False)
    return built


@cache
def exported(*arguments: str) -> bytes:
    return export_pt2(capture(model(*arguments), LIMITS), METADATA)


def inputs(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Rows with tokens at every third cell more, so that one row is empty."""
    generator = torch.Generator().manual_seed(batch + length)
    ids = torch.randint(0, LIMITS.vocab_size, (batch, length), generator=generator)
    return ids, (torch.arange(batch * length).reshape(batch, length) % 3 < torch.arange(batch)[:, None]).long()


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 19), (4, 13)], ids=lambda shape: "B{}-T{}".format(*shape))
@pytest.mark.parametrize(
    "case",
    [
        (TEXT_CLASSIFICATION, "sdpa", "sinusoidal"),
        (TEXT_CLASSIFICATION, "full", "none"),
        (TOKEN_CLASSIFICATION, "sdpa", "learned"),
    ],
    ids="-".join,
)
def test_the_file_answers_as_eager_does_to_the_bit(case: tuple[str, str, str], shape: tuple[int, int]) -> None:
    module, metadata = load_pt2(exported(*case))
    assert metadata == METADATA
    torch.testing.assert_close(module(*inputs(*shape)), model(*case)(*inputs(*shape)), rtol=0, atol=0)


def test_torch_itself_loads_the_file(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(exported())
    extra = {"ferry.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["ferry.json"]) == METADATA
    torch.testing.assert_close(program.module()(*inputs(2, 7)), model()(*inputs(2, 7)), rtol=0, atol=0)


def test_the_file_enforces_the_limits_by_itself() -> None:
    module, _ = load_pt2(exported())
    ids, mask = inputs(2, LIMITS.max_length + 1)
    with pytest.raises(RuntimeError, match=r"shape\[1\] to be <= 19, but got 20"):
        module(ids, mask)
    with pytest.raises(RuntimeError, match=r"shape\[0\] to be equal to 2, but got 1"):
        module(ids[:, :5], mask[:1, :5])


def test_two_exports_have_the_same_bytes() -> None:
    # From fresh processes and another folder: tests/pipeline/test_stages.py.
    assert export_pt2(capture(model(), LIMITS), METADATA) == exported()


def test_the_file_tells_nothing_of_where_it_was_made() -> None:
    records = read_records(exported())
    texts = {name: content for name, content in records.items() if not re.search(r"/(weight|tensor)_\d+$", name)}
    assert len(texts) == 9
    for content in texts.values():
        # Neither a path nor a note of the exporter's can be written without these.
        assert not re.search(rb"/|\\\\|\.py|stack_trace|from_node", content)
    assert records["archive/data/sample_inputs/model.pt"] == b""
    assert "archive/.data/serialization_id" not in records


def test_a_model_in_training_mode_is_not_exported() -> None:
    with pytest.raises(ValueError, match=r"in eval mode; got one in training mode. Call .eval\(\) first"):
        capture(nn.Linear(2, 2).train(), LIMITS)


def test_nothing_is_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    data = exported()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    load_pt2(data)


class Touch:
    """Pickled, it makes a file wherever it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


def pickled_inputs(data: bytes, file: Path) -> bytes:
    return edit_records(data, lambda records: records.update({"archive/data/sample_inputs/model.pt": dump(file)}))


def pickled_weight(data: bytes, file: Path) -> bytes:
    def say(document: Any) -> None:
        document["config"]["encoder.norm.bias"].update(use_pickle=True, path_name="weight_99")

    data = edit_records(data, lambda records: records.update({"archive/data/weights/weight_99": dump(file)}))
    return edit_json(data, say, WEIGHTS)


def pickled_constant(data: bytes, file: Path) -> bytes:
    code = pickle.dumps(Touch(file))
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    data = edit_records(data, lambda records: records.update({"archive/data/constants/opaque_obj_0": code}))
    return edit_json(data, lambda document: document["config"].update(it=entry), CONSTANTS)


def old_weights(data: bytes, file: Path) -> bytes:
    return edit_records(data, lambda records: records.update({"archive/data/weights/model.pt": dump(file)}))


def dump(file: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Touch(file), buffer)
    return buffer.getvalue()


def operator(target: str) -> Callable[[bytes, Path], bytes]:
    def plant(data: bytes, file: Path) -> bytes:
        def change(document: Any) -> None:
            node = next(nodes_of(document, "ne"))
            node["target"] = target
            node["inputs"] = [{"name": "self", "arg": {"as_string": f"touch {file}"}, "kind": 1}]

        return edit_json(data, change)

    return plant


def size(data: bytes, file: Path) -> bytes:
    def change(document: Any) -> None:
        for value in document["graph_module"]["graph"]["tensor_values"].values():
            for one in value["sizes"]:
                if "as_expr" in one:
                    one["as_expr"]["expr_str"] = f"__import__('pathlib').Path('{file}').touch() or Integer(3)"

    return edit_json(data, change)


def guard(data: bytes, file: Path) -> bytes:
    code = f"__import__('pathlib').Path('{file}').touch() or True"
    return edit_json(data, lambda document: document["guards_code"].append(code))


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (pickled_inputs, "it holds pickled sample inputs"),
        (pickled_weight, "it holds a pickled tensor"),
        (pickled_constant, "it holds 'archive/data/constants/opaque_obj_0', which does not belong"),
        (old_weights, "it holds 'archive/data/weights/model.pt', which does not belong"),
        (operator("torch.os.system"), "no operator of ours: target 'torch.os.system'"),
        (operator("_operator.methodcaller"), "no operator of ours: target '_operator.methodcaller'"),
        (
            operator("torch.ops.aten.from_file.default"),
            "no operator of ours: target 'torch.ops.aten.from_file.default'",
        ),
        (size, 'no operator of ours: expr_str "__import__'),
        (guard, 'no operator of ours: guards_code "__import__'),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_code_beside_the_graph_is_refused_and_not_run(
    tmp_path: Path, plant: Callable[[bytes, Path], bytes], message: str
) -> None:
    file = tmp_path / "touched"
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load_pt2(plant(exported(), file))
    assert str(caught.value).startswith("model.pt2 is damaged or not of Ferry's making: ")
    assert not file.exists()


def without(name: str) -> bytes:
    return edit_records(exported(), lambda records: records.pop(name) and None)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda: b"", "File is not a zip file"),
        (lambda: exported()[:-100], "File is not a zip file"),
        (lambda: without(GRAPH), "it lacks archive/models/model.json"),
        (lambda: without("archive/extra/ferry.json"), "it lacks archive/extra/ferry.json"),
        (lambda: edit_records(exported(), lambda records: records.update({GRAPH: b"{"})), "Expecting property name"),
        (lambda: edit_records(exported(), lambda records: records.update({GRAPH: b"[]"})), ""),
        (lambda: edit_json(exported(), lambda document: document.pop("graph_module")), ""),
        (lambda: edit_json(exported(), lambda document: document["config"].clear(), WEIGHTS), ""),
        (lambda: edit_json(exported(), lambda document: document["schema_version"].update(major=99)), "version"),
        (lambda: without("archive/data/weights/weight_3"), ""),
    ],
    ids=[
        "empty",
        "cut",
        "no graph",
        "no metadata",
        "no JSON",
        "a list",
        "half a graph",
        "no weights",
        "new",
        "a weight",
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(damage: Callable[[], bytes], message: str) -> None:
    with pytest.raises(ValueError, match=f"model.pt2 is damaged or not of Ferry's making: .*{message}") as caught:
        read_pt2(damage())
    assert "\n" not in str(caught.value)
