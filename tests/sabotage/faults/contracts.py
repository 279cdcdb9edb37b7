"""Faults of the contract: configuration, metadata, labels and limits, changed in one place or in all places alike."""

import json
from collections.abc import Callable
from typing import Any

from export.artifact.layout import EVALUATION_FILE, GOLDENS_FILE, MANIFEST_FILE
from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.files import dump_json, sha256_bytes
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_labels, model_limits, model_metadata
from export.tokenizer import huggingface_tokenizer, huggingface_tokenizer_config
from tests.sabotage.artifact import Contents
from tests.sabotage.faults.fault import CLASSIFIER, DEEP, Fault, Plant
from tests.sabotage.tools import EXPORTS, SHORT, edit_json, honest_model, onnx_metadata, set_metadata

Edit = Callable[[dict[str, Any]], object]
MODEL_FILES = tuple(SHORT)


def forge(edit: Edit, *, export: bool = True) -> Plant:
    """Change config.json, and everything that follows from it, as if the artifact had always been so.

    With `export` the model files are exported anew from the genuine weights; without, they get the new metadata only.
    """

    def plant(contents: Contents) -> None:
        told = onnx_metadata(contents)
        old_labels = model_labels(json.loads(contents[CONFIG_FILE]))
        edit_json(contents, CONFIG_FILE, edit)
        config = json.loads(contents[CONFIG_FILE])
        limits = model_limits(config)
        tokenizer = contents[TOKENIZER_FILE]
        contents[TOKENIZER_JSON_FILE] = huggingface_tokenizer(tokenizer, max_length=limits.max_length).encode()
        contents[TOKENIZER_CONFIG_FILE] = dump_json(huggingface_tokenizer_config(max_length=limits.max_length)).encode()
        metadata = model_metadata(
            config,
            profile=told["profile"],
            tokenizer_sha256=sha256_bytes(tokenizer),
            weights_sha256=sha256_bytes(contents[WEIGHTS_FILE]),
            versions=told["versions"],
            minimum_runtime=told["minimum_runtime"],
        )
        for name in MODEL_FILES:
            set_metadata(contents, name, metadata)
            if export:
                contents[name] = EXPORTS[name](honest_model(contents), contents)
        edit_json(contents, MANIFEST_FILE, lambda manifest: manifest.update(metadata=metadata))
        _rename_labels(contents, old_labels, model_labels(config))

    return plant


def _rename_labels(contents: Contents, old: list[str], new: list[str]) -> None:
    names = dict(zip(old, new, strict=True))

    def rename(evaluation: dict[str, Any]) -> None:
        for row in evaluation["labels"]:
            row["label"] = names[row["label"]]
        for row in evaluation["confusions"]:
            row.update(expected=names[row["expected"]], given=names[row["given"]])

    edit_json(contents, EVALUATION_FILE, rename)


def claim(edit: Edit) -> Plant:
    """Change the metadata in both model files and in the manifest alike, and nothing else."""

    def plant(contents: Contents) -> None:
        metadata = onnx_metadata(contents)
        edit(metadata)
        for name in MODEL_FILES:
            set_metadata(contents, name, metadata)
        edit_json(contents, MANIFEST_FILE, lambda manifest: manifest.update(metadata=metadata))

    return plant


def _config(edit: Edit) -> Plant:
    return lambda contents: edit_json(contents, CONFIG_FILE, edit)


def _manifest_metadata(edit: Edit) -> Plant:
    return lambda contents: edit_json(contents, MANIFEST_FILE, lambda manifest: edit(manifest["metadata"]))


def _swap_labels(first: int, second: int) -> Edit:
    def edit(config: dict[str, Any]) -> None:
        labels = model_labels(config)
        labels[first], labels[second] = labels[second], labels[first]
        _set_labels(config, labels)

    return edit


def _of_labels(choose: Callable[[list[int], list[int]], Edit]) -> Plant:
    """Forge labels; `choose` is told which of them goldens are answered with, and which no golden shows."""

    def plant(contents: Contents) -> None:
        labels = model_labels(json.loads(contents[CONFIG_FILE]))
        seen = {golden["label"] for golden in json.loads(contents[GOLDENS_FILE])["texts"]}
        shown = [place for place, label in enumerate(labels) if label in seen]
        hidden = [place for place, label in enumerate(labels) if label not in seen]
        forge(choose(shown, hidden), export=False)(contents)

    return plant


def _rename(place: int) -> Edit:
    def edit(config: dict[str, Any]) -> None:
        labels = model_labels(config)
        labels[place] = "GPL-3.0"
        _set_labels(config, labels)

    return edit


def _shown_for_hidden(shown: list[int], hidden: list[int]) -> Edit:
    return _swap_labels(shown[0], hidden[0])


def _hidden_for_hidden(_: list[int], hidden: list[int]) -> Edit:
    return _swap_labels(hidden[0], hidden[1])


def _hidden_renamed(_: list[int], hidden: list[int]) -> Edit:
    return _rename(hidden[0])


def _set_labels(config: dict[str, Any], labels: list[str]) -> None:
    config["id2label"] = {str(index): label for index, label in enumerate(labels)}
    config["label2id"] = {label: index for index, label in enumerate(labels)}


def _encoder(**changes: Any) -> Edit:
    return lambda config: config["encoder"].update(changes)


def _limit(key: str, value: int) -> Edit:
    return lambda metadata: metadata["limits"][key].update(max=value)


# The contract binds these by goldens.json, which can't be forged: the name of the check.
BOUND = "goldens"

# Each: its name, the kind, how it is planted, whether the function moves, and the check of structure that refuses it.
_ROWS: tuple[tuple[str, str, Plant, bool, str], ...] = (
    (
        "labels-swapped-everywhere",
        "two labels swapped",
        _of_labels(_shown_for_hidden),
        True,
        "",
    ),
    (
        "labels-swapped-unseen",
        "two labels swapped",
        _of_labels(_hidden_for_hidden),
        False,
        BOUND,
    ),
    ("label-renamed-everywhere", "two labels swapped", _of_labels(_hidden_renamed), False, BOUND),
    ("labels-swapped-in-config", "two labels swapped", _config(_swap_labels(0, 1)), False, "metadata"),
    ("labels-swapped-in-metadata", "two labels swapped", claim(lambda m: m["labels"].reverse()), True, "metadata"),
    ("label2id-alone", "two labels swapped", _config(lambda c: c["label2id"].update(MIT=1, ISC=0)), False, "metadata"),
    (
        "temperature-everywhere",
        "temperature or threshold changed",
        forge(lambda c: c.update(temperature=1.0), export=False),
        True,
        "",
    ),
    (
        "temperature-in-metadata",
        "temperature or threshold changed",
        claim(lambda m: m.update(temperature=1.0)),
        True,
        "metadata",
    ),
    (
        "temperature-a-little",
        "temperature or threshold changed",
        forge(lambda c: c.update(temperature=0.80001), export=False),
        False,
        BOUND,
    ),
    (
        "threshold-lowered",
        "temperature or threshold changed",
        forge(lambda c: c.update(threshold=0.0), export=False),
        True,
        "",
    ),
    (
        "threshold-a-little",
        "temperature or threshold changed",
        # No probability lies between the two.
        forge(lambda c: c.update(threshold=0.300000001), export=False),
        False,
        BOUND,
    ),
    (
        "threshold-raised",
        "temperature or threshold changed",
        forge(lambda c: c.update(threshold=0.9), export=False),
        True,
        "",
    ),
    (
        "threshold-in-metadata",
        "temperature or threshold changed",
        claim(lambda m: m.update(threshold=0.9)),
        True,
        "metadata",
    ),
    ("max-length-raised", "limits edited", forge(_encoder(max_len=64)), True, ""),
    ("max-length-lowered", "limits edited", forge(_encoder(max_len=9)), True, ""),
    ("max-length-in-metadata", "limits edited", claim(_limit("sequence_length", 512)), True, "metadata"),
    ("largest-id-in-metadata", "limits edited", claim(_limit("input_ids", 1000)), False, "metadata"),
    (
        "smallest-id-in-metadata",
        "limits edited",
        claim(lambda m: m["limits"]["input_ids"].update(min=-1)),
        False,
        "metadata",
    ),
    (
        "activation-in-metadata",
        "activation left to the service",
        claim(lambda m: m.update(activation="sigmoid")),
        False,
        "manifest",
    ),
    (
        "pooling-in-metadata",
        "activation left to the service",
        claim(lambda m: m["pooling"].update(kind="first")),
        False,
        "metadata",
    ),
    ("empty-row-in-metadata", "contract reworded", claim(lambda m: m.update(empty_row="NaN")), False, "metadata"),
    (
        "text-rules-in-metadata",
        "contract reworded",
        claim(lambda m: m["text"].update(nul="U+0000 ends the text")),
        False,
        "metadata",
    ),
    (
        "truncation-in-metadata",
        "other truncation",
        claim(lambda m: m["text"].update(truncation="the last 17 pieces are kept")),
        False,
        "metadata",
    ),
    (
        "tokenizer-kind-in-metadata",
        "contract reworded",
        claim(lambda m: m["tokenizer"].update(kind="wordpiece")),
        False,
        "manifest",
    ),
    (
        "reserved-ids-in-metadata",
        "contract reworded",
        claim(lambda m: m["tokenizer"]["reserved_ids"].update(pad=1)),
        False,
        "manifest",
    ),
    (
        "axes-in-metadata",
        "contract reworded",
        claim(lambda m: m["outputs"]["logits"].update(axes=["labels"])),
        False,
        "metadata",
    ),
    (
        "minimum-runtime-in-metadata",
        "opset edited",
        claim(lambda m: m["minimum_runtime"].update(onnxruntime="1.10.0")),
        False,
        "minimum runtime",
    ),
    (
        "manifest-alone",
        "manifest edited",
        _manifest_metadata(lambda m: m["versions"].update(torch="1.0.0")),
        False,
        "goldens",
    ),
    ("unknown-metadata", "metadata stripped", claim(lambda m: m.update(note="tested by hand")), False, "metadata"),
    ("causal-everywhere", "causal for full", forge(_encoder(causal=True)), True, ""),
    ("relu-everywhere", "another mechanism", forge(_encoder(activation="relu")), True, ""),
    ("heads-everywhere", "another mechanism", forge(_encoder(num_heads=4)), True, ""),
    ("no-positions-everywhere", "positions left out", forge(_encoder(position="none")), True, ""),
    ("mechanism-everywhere", "another mechanism", forge(_encoder(attention="full")), False, BOUND),
    ("dropout-everywhere", "contract reworded", forge(_encoder(dropout=0.5)), False, BOUND),
    (
        "architecture",
        "contract reworded",
        _config(lambda c: c.update(architectures=["TokenTagger"])),
        False,
        "weights",
    ),
    ("ten-million-layers", "larger than the files", _config(_encoder(num_layers=10**7)), False, "weights"),
    ("endless-length", "larger than the files", _config(_encoder(max_len=2 * 10**8)), False, "weights"),
    ("unknown-setting", "contract reworded", _config(_encoder(flash=True)), False, "weights"),
)

FAULTS = tuple(
    Fault(
        id=f"contract-{name}",
        kind=kind,
        plant=plant,
        moves=moves,
        check=check,
        base=DEEP if name == "threshold-lowered" else CLASSIFIER,
    )
    for name, kind, plant, moves, check in _ROWS
)
