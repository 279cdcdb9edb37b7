"""The files under judgement, parsed on first use, and what a check finds in them."""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx
import torch
from google.protobuf.message import DecodeError, EncodeError
from torch import nn

from export.contract import ONNX_METADATA_KEY, Limits
from export.errors import FerryError
from export.model import CONFIG_FILE, WEIGHTS_FILE, model_limits, read_weights
from export.onnx_export import ONNX_FILE, read_onnx
from export.precision_files import Batches
from export.profiles import PROFILES, Profile
from export.proof.checks.onnx_graph import OnnxGraph
from export.proof.checks.script_graph import ScriptGraph
from export.proof.checks.uses import Use, parameter_uses
from export.proof.runtimes import Array, Read, load_eager_model
from export.proof.runtimes.pt2 import shared_program
from export.pt2 import PT2_FILE, read_pt2_metadata
from export.torchscript import TORCHSCRIPT_FILE, load_torchscript

# What parsers and judges raise on bytes that are not what they take them for; their libraries name no base class.
UNREADABLE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    *(OSError, DecodeError, EncodeError, FerryError, struct.error, zipfile.BadZipFile, zlib.error),
)


class NotJudgedError(Exception):
    """A check could not be made, for a reason that is no fault of the files."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The outcome of one check; it passed if `problems` is empty. `note` says why a check could not be made."""

    name: str
    problems: tuple[str, ...]
    note: str = ""


def run_check(name: str, parts: tuple["Check", ...], files: "Files") -> CheckResult:
    """Make the parts of one check; what can't be read is a problem that a part found."""
    problems: list[str] = []
    notes = []
    for part in parts:
        try:
            problems += part(files)
        except NotJudgedError as reason:
            notes.append(str(reason))
        except UNREADABLE as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            problems.append(f"can't be checked: {lines[0]}")
    return CheckResult(name=name, problems=tuple(dict.fromkeys(problems)), note="; ".join(notes))


class Files:
    """The files under judgement, parsed on first use.

    What can't be parsed raises one of UNREADABLE.
    """

    def __init__(self, read: Read, *, optional: Sequence[str] = (), calibration: Batches | None = None) -> None:
        """Take what gives the bytes of a file by its name, which of OPTIONAL_FILES there are, and a run's rows."""
        self.read = read
        self.optional = tuple(optional)
        self.calibration = calibration

    def metadata_in(self, name: str) -> dict[str, Any]:
        """The metadata in one of OPTIONAL_FILES."""
        return _metadata(json.loads(_metadata_text(name, read_onnx(self.read(name)))))

    @cached_property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self.read(CONFIG_FILE))
        return config

    @cached_property
    def limits(self) -> Limits:
        return model_limits(self.config)

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The arrays of model.safetensors by name."""
        return {name: tensor.numpy() for name, tensor in read_weights(self.read(WEIGHTS_FILE)).items()}

    @cached_property
    def tables(self) -> dict[str, Array]:
        """What the model needs beside the weights, such as position tables: rebuilt from config.json."""
        return {name: buffer.numpy() for name, buffer in self.eager.named_buffers() if name not in self.weights}

    @cached_property
    def eager(self) -> nn.Module:
        self.refuse_oversize()
        return load_eager_model(self.read)

    @cached_property
    def uses(self) -> list[Use]:
        """The modules with weights, in the order of the model's computation."""
        return parameter_uses(self.eager)

    @cached_property
    def onnx(self) -> onnx.ModelProto:
        return read_onnx(self.read(ONNX_FILE))

    @cached_property
    def graph(self) -> OnnxGraph:
        return OnnxGraph(self.onnx)

    @cached_property
    def onnx_metadata_text(self) -> str:
        return _metadata_text(ONNX_FILE, self.onnx)

    @cached_property
    def onnx_metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads(self.onnx_metadata_text)
        return metadata

    @cached_property
    def profile(self) -> Profile:
        """What the ONNX file says that it is written for."""
        name = self.onnx_metadata.get("profile")
        if name not in PROFILES:
            raise ValueError(f"{ONNX_FILE} must be of a profile of {', '.join(PROFILES)}; it says {name!r}")
        return PROFILES[name]

    @cached_property
    def archive(self) -> list[tuple[str, bytes]]:
        """The records of model.pt by name, each without the archive's own folder; a name may stand twice."""
        return read_archive(TORCHSCRIPT_FILE, self.read(TORCHSCRIPT_FILE))

    @cached_property
    def pt2_archive(self) -> list[tuple[str, bytes]]:
        """The records of model.pt2, as those of `archive`."""
        return read_archive(PT2_FILE, self.read(PT2_FILE))

    @cached_property
    def _loaded(self) -> tuple[torch.jit.ScriptModule, dict[str, Any]]:
        # Damage is found here, before torch reads the records.
        _ = self.archive
        return load_torchscript(self.read(TORCHSCRIPT_FILE))

    @property
    def torchscript(self) -> torch.jit.ScriptModule:
        return self._loaded[0]

    @property
    def torchscript_metadata(self) -> dict[str, Any]:
        return self._loaded[1]

    @cached_property
    def pt2(self) -> torch.export.ExportedProgram:
        return shared_program(self.read(PT2_FILE))

    @cached_property
    def pt2_metadata(self) -> dict[str, Any]:
        return read_pt2_metadata(self.read(PT2_FILE))

    @cached_property
    def script(self) -> ScriptGraph:
        return ScriptGraph(self.torchscript)

    def refuse_oversize(self) -> None:
        """Refuse a configuration that describes more than the files hold, before anything of its size is made.

        Raises:
            ValueError: names what is too large.
        """
        encoder = self.config["encoder"]
        dim, most = encoder["dim"], sum(weight.size for weight in self.weights.values())
        wanted = {name: encoder[name] * dim for name in ("vocab_size", "hidden_dim")} | {"dim": 3 * dim * dim}
        problems = [f"{name} {encoder[name]}" for name, size in wanted.items() if size > most]
        if encoder["num_layers"] > len(self.weights):
            problems.append(f"num_layers {encoder['num_layers']}")
        # A table of positions may be no weight; then it stands in every model file all the same.
        if encoder["max_len"] * dim > max(len(self.read(name)) for name in (ONNX_FILE, TORCHSCRIPT_FILE, PT2_FILE)):
            problems.append(f"max_len {encoder['max_len']}")
        if problems:
            raise ValueError(f"{CONFIG_FILE} describes more than the model files hold: {', '.join(problems)}")


Check = Callable[[Files], list[str]]


def _metadata_text(name: str, model: onnx.ModelProto) -> str:
    values = [entry.value for entry in model.metadata_props if entry.key == ONNX_METADATA_KEY]
    if len(values) != 1:
        raise ValueError(f"{name} must carry one metadata entry {ONNX_METADATA_KEY}; got {len(values)}")
    text: str = values[0]
    return text


def _metadata(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError(f"the metadata must be a JSON object; got {type(document).__name__}")
    return document


def read_archive(file: str, data: bytes) -> list[tuple[str, bytes]]:
    """Read every record of a zip archive, in order, without its first folder.

    Raises:
        ValueError: if the archive is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError(f"{file} holds compressed records; Ferry stores them as they are. Export again")
            if sum(entry.file_size for entry in archive.infolist()) > len(data):
                raise ValueError(f"{file} is damaged: its records are larger than the file")
            return [(entry.filename.partition("/")[2], archive.read(entry)) for entry in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, RuntimeError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None


def messages(message: Any, kind: type[Any]) -> Iterator[Any]:
    """Yield every protobuf message of a kind inside another, however deep."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from messages(part, kind)
