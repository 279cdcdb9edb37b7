"""One model file from a checkpoint: `python -m export.produce FORMAT CHECKPOINT TARGET PROFILE`.

In a process of its own, because the bytes must be a function of the checkpoint alone: the exporters write some parts in
the order of Python's string hashes, which only a process that starts with a fixed PYTHONHASHSEED repeats.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxscript
import torch

from export import __version__
from export.capture import capture
from export.contract import TOKENIZER_FILE, Limits
from export.files import read_json, sha256_file
from export.model import CONFIG_FILE, WEIGHTS_FILE, load_model, model_limits, model_metadata
from export.onnx_export import ONNX_FILE, export_onnx
from export.profiles import PROFILES, Profile
from export.pt2 import MINIMUM_TORCH, PT2_FILE, export_pt2
from export.torchscript import MINIMUM_LIBTORCH, TORCHSCRIPT_FILE, export_torchscript

ROOT = Path(__file__).resolve().parent.parent

Export = Callable[[torch.nn.Module, dict[str, Any], Limits, Profile], bytes]
FORMATS: dict[str, tuple[str, Export]] = {
    "torchscript": (TORCHSCRIPT_FILE, lambda model, metadata, *_: export_torchscript(model, metadata)),
    "onnx": (
        ONNX_FILE,
        lambda model, metadata, limits, profile: export_onnx(capture(model, limits), metadata, profile),
    ),
    "pt2": (PT2_FILE, lambda model, metadata, limits, _: export_pt2(capture(model, limits), metadata)),
}


def checkpoint_metadata(checkpoint: Path, profile: str) -> dict[str, Any]:
    """Build the metadata of the model files that a checkpoint folder leads to."""
    config = read_json(checkpoint / CONFIG_FILE)
    return model_metadata(
        config,
        profile=profile,
        tokenizer_sha256=sha256_file(checkpoint / TOKENIZER_FILE),
        weights_sha256=sha256_file(checkpoint / WEIGHTS_FILE),
        versions={
            "ferry": __version__,
            "torch": torch.__version__.partition("+")[0],
            "onnx": onnx.__version__,
            "onnxscript": onnxscript.__version__,
        },
        minimum_runtime={
            "onnxruntime": PROFILES[profile].minimum_onnxruntime,
            "libtorch": MINIMUM_LIBTORCH,
            "torch": MINIMUM_TORCH,
        },
    )


def start_export(format_name: str, checkpoint: Path, folder: Path, profile: str) -> subprocess.Popen[str]:
    """Start a fresh process that writes one model file into `folder`; its messages come through a pipe."""
    paths = (str(checkpoint.absolute()), str(folder.absolute()))
    command = [sys.executable, "-m", "export.produce", format_name, *paths, profile]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def main() -> None:
    format_name, checkpoint, folder, profile = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    file_name, export = FORMATS[format_name]
    config = read_json(checkpoint / CONFIG_FILE)
    metadata = checkpoint_metadata(checkpoint, profile)
    data = export(load_model(checkpoint), metadata, model_limits(config), PROFILES[profile])
    try:
        (folder / file_name).write_bytes(data)
    except OSError as error:
        sys.exit(f"{file_name} can't be written: {error.strerror}.")


if __name__ == "__main__":
    main()
