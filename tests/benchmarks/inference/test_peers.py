"""The peers' side, without their environment: what is asked of it, how it is answered, and how it fails."""

import ast
import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.inference.peers import PEERS, REQUIREMENTS, ROOM, Worker, bert_arguments, make_peers, needed_forms
from benchmarks.inference.plan import FULL, QUICK
from benchmarks.inference.prepare import engines_of
from benchmarks.inference.work import ENCODER, LABELS
from export.errors import FerryError
from pipeline.run import ROOT


def keys_of(file: str, table: str) -> list[str]:
    """Return the keys of a table, with constants replaced by what they stand for, without importing the file."""
    tree = ast.parse((ROOM / file).read_text("utf-8"))
    constants = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            pairs = zip(targets, values, strict=True)
            constants |= {target.id: value.value for target, value in pairs if isinstance(value, ast.Constant)}
        if isinstance(node, ast.AnnAssign) and node.target.id == table:
            return [key.value if isinstance(key, ast.Constant) else constants[key.id] for key in node.value.keys]
    raise AssertionError(f"{file} has no {table}")


def test_every_form_can_be_made_and_every_engine_has_its_candidates() -> None:
    assert {row.form for row in PEERS.values()} - {None} == set(keys_of("make_models.py", "FORMS"))
    assert {name for name, row in PEERS.items() if not row.is_file} == set(keys_of("answer.py", "CANDIDATES"))


def test_forms_come_after_those_they_are_made_of() -> None:
    order = keys_of("make_models.py", "FORMS")
    for names in ([name] for name in PEERS):
        forms = sorted(needed_forms(names), key=order.index)
        assert forms[0] == "plain"
        assert set(forms) >= {form for name in names if (form := PEERS[name].form)}
    assert needed_forms(["eager"]) == ["plain"]
    assert needed_forms(["optimum-O3-int8-channel"]) == ["O3", "O3-int8-channel", "plain"]
    assert needed_forms(["ctranslate2"]) == ["ctranslate2", "plain", "sentence-transformers"]


def test_peers_have_our_dimensions() -> None:
    assert bert_arguments(ENCODER, LABELS) == {
        "vocab_size": 30_522,
        "hidden_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 1536,
        "max_position_embeddings": 512,
        "num_labels": LABELS,
    }


def test_engines_hold_their_own_candidates() -> None:
    assert engines_of(["optimum-plain", "openvino", "eager", "compile"]) == {
        "openvino": ["openvino"],
        "torch": ["eager", "compile"],
    }
    assert set(QUICK.peers) < set(FULL.peers) == set(PEERS)


def test_requirements_are_exact_and_share_the_torch_of_ours() -> None:
    def pins(file: Path) -> dict[str, str]:
        lines = [line for line in file.read_text("utf-8").splitlines() if line and not line.startswith("#")]
        assert all(line.count("==") == 1 for line in lines)
        return dict(line.split("==") for line in lines)

    peers, ours = pins(REQUIREMENTS), pins(ROOT / "constraints.txt")
    assert peers["torch"] == ours["torch"]
    # `make setup` installs this build unless it is asked for the other.
    assert peers["onnxruntime"] == ours["onnxruntime-gpu"]


@pytest.fixture
def answer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("answer", ROOM / "answer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_worker_answers_the_batch_it_was_given_as_often_as_it_is_asked(answer: ModuleType, tmp_path: Path) -> None:
    ids = np.arange(6).reshape(2, 3)
    np.savez(tmp_path / "batch.npz", ids=ids, mask=np.ones_like(ids))
    calls: list[int] = []

    def prepare(ids: np.ndarray, mask: np.ndarray) -> object:
        def once() -> np.ndarray:
            calls.append(1)
            return (ids * mask).sum(axis=1, keepdims=True)

        return once

    requests = [{"prepare": "own", "batch": str(tmp_path / "batch.npz")}, {"answer": "own", "times": 3}]
    written = io.StringIO()
    answer.serve({"own": prepare}, io.StringIO("".join(f"{json.dumps(request)}\n" for request in requests)), written)
    first, second = (json.loads(line) for line in written.getvalue().splitlines())
    assert first == {"logits": [[3], [12]]}
    assert len(second["seconds"]) == 3
    assert all(seconds > 0 for seconds in second["seconds"])
    assert len(calls) == 4


def test_a_peer_that_does_not_start_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FerryError, match=r"the peer torch has ended: .+torch\.log holds the rest"):
        Worker(Path(sys.executable), "torch", ["no such candidate"], tmp_path, tmp_path)


def test_models_that_can_not_be_made_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FerryError, match=r"the peers' models can't be made: .+peers\.log holds the rest"):
        make_peers(Path(sys.executable), tmp_path, {"bench": {"bert": {"no such argument": 1}, "forms": []}})
    assert [file.name for file in tmp_path.iterdir()] == ["peers.log"]
