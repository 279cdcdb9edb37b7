"""An artifact that tags words, whose logits are rows of a table, so that every answer can be worked out by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sentencepiece
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from tests.examples.consumers import change_manifest, change_metadata, copy_artifact, read_json, reseal

LABELS = ["O", "B-NAME", "I-NAME", "B-DATE"]
TEMPERATURE = 1.5
# Both models read their logits from the same table of float32, so nothing is rounded.
TOLERANCE = 1e-6
TEXTS = ["", "Copyright 2024 Jane Doe", " \t ", "\u2581 <cls>\u0000naïve\u00a0café", "a word and another word " * 20]


class Table(nn.Module):
    """logits[b, t] = table[input_ids[b, t]], and zeros at padding."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table, requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.table[input_ids] * attention_mask.unsqueeze(-1)


def make_tagger(artifact: Path, folder: Path) -> Path:
    """Exchange the models of a copy of an artifact for a table, and its metadata and goldens with them."""
    copy = copy_artifact(artifact, folder)
    metadata = read_json(copy / "manifest.json")["metadata"]
    vocab_size = metadata["limits"]["input_ids"]["max"] + 1
    table = np.random.default_rng(0).normal(size=(vocab_size, len(LABELS))).astype(np.float32)
    _write_onnx(table, copy / "model.onnx")
    torch.jit.save(torch.jit.script(Table(torch.from_numpy(table)).eval()), copy / "model.pt")

    def change(metadata: Any) -> None:
        metadata.update(task="token-classification", labels=LABELS, temperature=TEMPERATURE, threshold=0)
        metadata["outputs"]["logits"]["axes"] = ["batch_size", "sequence_length", "labels"]
        metadata["text"]["words"] = (
            "a word is a run of characters other than white space; its answer is that of its first piece"
        )

    change_metadata(copy, change)
    (copy / "goldens.json").write_text(json.dumps(_goldens(copy, table)), "utf-8")
    reseal(copy)
    change_manifest(copy, lambda manifest: manifest.update(name="tagger"))
    return copy


def answer_by_hand(artifact: Path, table: np.ndarray, text: str) -> dict[str, Any]:
    """Work out a golden from the contract's own words: ids of the whole text, and an answer for each word."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(artifact / "tokenizer.model"))
    room = read_json(artifact / "manifest.json")["metadata"]["limits"]["sequence_length"]["max"] - 2
    normal = " ".join(
        word for word in text.replace("\0", " ").translate(dict.fromkeys(range(9, 14), " ")).split(" ") if word
    )
    pieces = processor.encode(normal)
    words, begun = [], 0
    for word in normal.split(" ") if normal else []:
        if begun < room:
            exponentials = np.exp(table[pieces[begun]].astype(np.float64) / TEMPERATURE)
            best = int(exponentials.argmax())
            label, probability = LABELS[best], float(exponentials[best] / exponentials.sum())
        else:
            label, probability = None, 0.0
        words.append({"word": word, "label": label, "probability": probability})
        begun += len(processor.encode(word))
    assert begun == len(pieces)
    ids = [2, *pieces[:room], 3]
    dropped = len(pieces) - len(ids) + 2
    return {"text": text, "input_ids": ids, "dropped": dropped, "logits": table[ids].tolist(), "words": words}


def _goldens(artifact: Path, table: np.ndarray) -> dict[str, Any]:
    ids, mask = np.array([[2, 9, 8, 3], [2, 7, 3, 0]]), np.array([[1, 0, 1, 1], [0, 0, 0, 0]])
    return {
        "format": 3,
        "tolerance": {"logits": TOLERANCE, "probabilities": TOLERANCE},
        "texts": [answer_by_hand(artifact, table, text) for text in TEXTS],
        "batches": [
            {
                "input_ids": ids.tolist(),
                "attention_mask": mask.tolist(),
                "logits": (table[ids] * mask[:, :, np.newaxis]).tolist(),
            }
        ],
    }


def _write_onnx(table: np.ndarray, path: Path) -> None:
    axes = ["batch_size", "sequence_length"]
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, axes) for n in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*axes, table.shape[1]])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["kept_rows"]),
        helper.make_node("Mul", ["rows", "kept_rows"], ["logits"]),
    ]
    constants = [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(np.array([-1]), "last")]
    graph = helper.make_graph(nodes, "table", inputs, [output], constants)
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), path)
