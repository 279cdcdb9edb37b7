"""Each structural check is shown failing by a fault of its own, and passing on good models of every kind."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.contract import TOKEN_CLASSIFICATION, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.files import dump_json
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.proof import checks
from export.proof.checks import CHECKS, CheckResult, find_texts, traces
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE
from tests.export.proof.faults import CAUSAL_FAULTS, FAULTS, add_nothing, path_in_pieces
from tests.export.proof.planting import Files, edit_code, onnx_fault, set_metadata
from tests.export.proof.subjects import build_files

EVERY_FILE = (
    *(CONFIG_FILE, WEIGHTS_FILE, ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE),
    *(TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_JSON_FILE),
)


@pytest.fixture(scope="module")
def causal() -> Files:
    """A model with everything that the plain one lacks: written-out causal attention, learned positions, two layers."""
    return build_files(
        attention="full",
        causal=True,
        position="learned",
        norm="post",
        activation="relu",
        num_layers=2,
        task=TOKEN_CLASSIFICATION,
    )


def check_files(files: Files) -> list[CheckResult]:
    return checks.check_files(checks.Files(files.__getitem__))


def found(files: Files) -> dict[str, tuple[str, ...]]:
    """The problems of the checks that failed, by check."""
    return {result.name: result.problems for result in check_files(files) if result.problems}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name: str, good: Files) -> None:
    plant, checks = FAULTS[name]
    files = dict(good)
    plant(files)
    assert files != good
    assert set(found(files)) == set(checks)


@pytest.mark.parametrize("name", CAUSAL_FAULTS)
def test_a_fault_planted_in_a_causal_model_is_named(name: str, causal: Files) -> None:
    plant, checks = CAUSAL_FAULTS[name]
    files = dict(causal)
    plant(files)
    assert files != causal
    assert set(found(files)) == set(checks)


def test_every_check_is_seen_to_fail(good: Files) -> None:
    seen = {check for _, checks in (*FAULTS.values(), *CAUSAL_FAULTS.values()) for check in checks}
    # These have tests of their own: here, in test_script_records, and among those of sabotage and of precisions.
    assert set(CHECKS) - seen == {
        *("no user's or machine's name", "nothing runs beside forward", "self-contained"),
        *("other precisions follow from model.onnx", "every Linear of int8 in integers"),
        "ranges of int8 are those of the training rows",
    }


def test_a_good_causal_model_passes(causal: Files) -> None:
    assert found(causal) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"position": "none", "causal": True, "activation": "relu", "pooling": "max", "dropout": 0.0, "max_len": 3},
        {"dim": 2, "num_heads": 2, "hidden_dim": 1, "vocab_size": 2, "labels": ["a", "b"]},
    ],
    ids=lambda change: "-".join(f"{key}-{value}" for key, value in change.items()),
)
def test_a_good_model_of_any_kind_passes(change: dict[str, Any]) -> None:
    files = build_files(**change)
    assert [result for result in check_files(files) if result.problems or result.note] == []


def test_messages_say_where_what_was_got_and_what_was_wanted(good: Files) -> None:
    said = {}
    for name in ("onnx-epsilon", "onnx-two-norms-swapped", "onnx-attention-written-out", "script-an-operation-more"):
        files = dict(good)
        FAULTS[name][0](files)
        said[name] = found(files)
    assert said["onnx-epsilon"]["LayerNorm epsilon"] == (
        "model.onnx, encoder.blocks.0.attention_norm: LayerNorm has epsilon 1e-06 over sizes [16]; "
        "the model has 1e-05 over [16]",
    )
    assert said["onnx-two-norms-swapped"]["weights in their places"][0].endswith(
        ": takes the weight encoder.blocks.0.feed_forward_norm.weight "
        "where the model takes encoder.blocks.0.attention_norm.weight"
    )
    assert said["onnx-attention-written-out"]["fused attention"][0] == (
        "model.onnx has 6 of 7 Attention, 7 a layer of 'sdpa' attention"
    )
    assert said["script-an-operation-more"]["model.pt is a fresh export"] == (
        "model.pt has aten::contiguous(logits, memory_format=0), "
        "where a fresh export has what forward returns (195 operations, 194 in a fresh export)",
        "model.pt, code/__torch__/models/heads.py, class TextClassifier is not that of a fresh export",
    )


def test_the_graph_of_another_release_is_told_and_not_judged(good: Files) -> None:
    """An exporter of another release may write another graph; only that is excused."""
    files = dict(good)
    set_metadata(lambda metadata: metadata["versions"].update(onnxscript="0.0.1"))(files)
    assert all(not result.note for result in check_files(files))
    onnx_fault(add_nothing)(files)
    told = {result.name: result for result in check_files(files) if result.problems or result.note}
    name = "model.onnx is a fresh export"
    assert list(told) == [name]
    assert told[name].problems == ()
    assert told[name].note.startswith("model.onnx was written by onnxscript 0.0.1, not ")


def test_names_of_people_and_machines_are_found(good: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "own_names", lambda: {"annabel", "encoder"})
    assert found(good) == {}
    plants = {
        ONNX_FILE: onnx_fault(lambda model: setattr(model.graph.node[0], "name", "by_annabel")),
        TORCHSCRIPT_FILE: edit_code("packing", "Add the batch axis.", "Ask annabel."),
    }
    for file, plant in plants.items():
        files = dict(good)
        plant(files)
        assert [text for text in found(files)["no user's or machine's name"] if text.startswith(file)]


def test_own_names_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "annabel")
    monkeypatch.setattr("socket.gethostname", lambda: "vm")
    monkeypatch.setenv("HOME", "/home/annabel.lee")
    assert traces.own_names() == {"annabel", "annabel.lee"}


def test_what_the_users_data_says_is_no_trace(good: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and pieces may hold paths and names."""
    monkeypatch.setattr(traces, "own_names", lambda: {"annabel"})
    files = build_files(labels=["/usr/share/licenses/", "annabel"])
    path_in_pieces(files)
    assert set(found(files)) == {"metadata"}  # the tokenizer is another than the metadata says
    assert set(found(good)) == set()


def test_texts_are_found_in_model_files(good: Files) -> None:
    text = "Licensed under the Apache License"
    assert find_texts(good.__getitem__, [text, "MIT"]) == []
    files = dict(good)
    edit_code("packing", "Add the batch axis.", text)(files)
    assert find_texts(files.__getitem__, [text]) == [
        f"model.pt, code/__torch__/models/packing.py holds the text '{text}'"
    ]


@pytest.mark.parametrize("setting", ["num_layers", "vocab_size", "hidden_dim", "max_len", "dim"])
def test_a_configuration_of_a_giant_is_refused_before_it_is_built(good: Files, setting: str) -> None:
    config = json.loads(good[CONFIG_FILE])
    config["encoder"][setting] = 10**12
    problems = found({**good, CONFIG_FILE: dump_json(config).encode()})
    assert any("config.json describes more than the model files hold" in text for text in problems["tables"])


@pytest.mark.parametrize("name", EVERY_FILE)
@pytest.mark.parametrize("data", [b"", b"PK\x05\x06" + b"\0" * 18, b'{"encoder": 3}', b"\xff" * 100, b"[" * 100_000])
def test_whatever_stands_for_a_file_is_a_finding_and_no_crash(good: Files, name: str, data: bytes) -> None:
    results = check_files({**good, name: data})
    assert len(results) == len(CHECKS)
    if name not in (TOKENIZER_CONFIG_FILE, TOKENIZER_JSON_FILE):
        assert any(result.problems for result in results)


@pytest.mark.parametrize("name", EVERY_FILE)
def test_a_file_that_is_missing_or_another_is_a_finding(good: Files, name: str) -> None:
    for other in (ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE, WEIGHTS_FILE):
        if other != name:
            assert found({**good, name: good[other]})
    assert found({file: data for file, data in good.items() if file != name})


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from([ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE, WEIGHTS_FILE, CONFIG_FILE]),
    flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), min_size=1, max_size=3),
)
def test_flipped_bits_are_findings_and_no_crash(good: Files, name: str, flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(good[name])
    for place, bit in flips:
        damaged[place % len(damaged)] ^= 1 << bit
    results = check_files({**good, name: bytes(damaged)})
    assert all(isinstance(result, CheckResult) for result in results)
    if bytes(damaged) != good[name]:
        assert any(result.problems for result in results)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_files_cut_short_are_findings_and_no_crash(good: Files, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE, WEIGHTS_FILE, CONFIG_FILE]))
    length = data.draw(st.integers(0, len(good[name]) - 1))
    assert any(result.problems for result in check_files({**good, name: good[name][:length]}))
