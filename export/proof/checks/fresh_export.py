"""The strongest check of structure: is a file's graph that of a fresh export of the same configuration?

A model of the configuration with other weights is exported here and now, and both graphs are compared up to order and
the values of weights: every operator, attribute, constant, name, connection, and which weight is used where. What
differs in nothing of this computes the same function. Each value gets a digest of the whole computation that leads to
it, so equal digests of all operations mean equal graphs. This file makes the export; one beside it for each format
compares.

Exporters of other releases may write other graphs, and then nothing follows from a difference: that is said, not
judged. The other checks stand without this one.
"""

import hashlib
import json
import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache

import onnx
import onnxscript
import torch

from export import __version__
from export.capture import capture
from export.contract import canonical_json
from export.model import build_model, model_labels, model_limits
from export.onnx_export import export_onnx
from export.profiles import Profile
from export.proof.checks.files import Files, NotJudgedError
from export.proof.checks.script_graph import ScriptGraph
from export.proof.runtimes import Array
from export.pt2 import export_pt2
from export.torchscript import export_torchscript, load_torchscript


@dataclass(frozen=True)
class Fresh:
    """A fresh export: the bytes of the files, and the weights that went into them."""

    onnx: bytes
    torchscript: bytes
    pt2: bytes
    weights: Mapping[str, Array]

    @cached_property
    def script(self) -> ScriptGraph:
        return ScriptGraph(load_torchscript(self.torchscript)[0])


@dataclass(frozen=True)
class Operation:
    """One operation of a graph: a digest of it and all that it follows from, and how a person would call it."""

    digest: str
    told: str


def fresh_export(files: Files) -> Fresh:
    """Export a model of a configuration anew; what does not shape the graphs is left out, so one export serves many."""
    # Before anything is built, this refuses a configuration that the weights do not fit.
    _ = files.eager
    config = files.config
    shaping = {key: config[key] for key in ("architectures", "task", "pooling", "head", "encoder")}
    labels = [str(number) for number in range(len(model_labels(config)))]
    described = canonical_json({**shaping, "id2label": dict(zip(labels, labels, strict=True))})
    return _fresh_export(described, files.profile)


@lru_cache(maxsize=8)
def _fresh_export(description: str, profile: Profile) -> Fresh:
    config = json.loads(description)
    with torch.random.fork_rng(devices=[]), _quiet():
        model = build_model(config).eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            # All different, or the exporter would store equal ones once.
            parameter.copy_(torch.rand(parameter.shape, generator=generator))
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        program = capture(model, model_limits(config))
        return Fresh(
            onnx=export_onnx(program, {}, profile),
            torchscript=export_torchscript(model, {}),
            pt2=export_pt2(program, {}),
            weights=weights,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks to itself: they were made when the files were exported."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def judge(files: Files, file: str, problems: list[str]) -> list[str]:
    """Return the problems, unless other releases than those installed wrote the file."""
    installed = {
        "ferry": __version__,
        "onnx": onnx.__version__,
        "onnxscript": onnxscript.__version__,
        "torch": torch.__version__.partition("+")[0],
    }
    told = files.onnx_metadata["versions"]
    others = [f"{name} {told[name]}, not {here}" for name, here in installed.items() if told.get(name, here) != here]
    if problems and others:
        raise NotJudgedError(f"{file} was written by {', '.join(others)}: a fresh export proves nothing here")
    return problems


def compare(file: str, got: list[Operation], wanted: list[Operation]) -> list[str]:
    """Name the first operation that differs; those after it differ because of it."""
    extra = Counter(operation.digest for operation in got)
    extra.subtract(operation.digest for operation in wanted)
    odd = next((operation for operation in got if extra[operation.digest] > 0), None)
    missing = next((operation for operation in wanted if extra[operation.digest] < 0), None)
    if odd is None and missing is None:
        return []
    found = f"has {odd.told}" if odd else f"lacks {missing.told}" if missing else ""
    told = (
        f", where a fresh export has {missing.told}" if odd and missing else "; a fresh export has none" if odd else ""
    )
    return [f"{file} {found}{told} ({len(got)} operations, {len(wanted)} in a fresh export)"]


def digest_of(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
