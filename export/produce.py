"""One model file from a checkpoint, in a process of its own: `python -m export.produce FORMAT CHECKPOINT TARGET`.

A process of its own, because the bytes must be a function of the checkpoint alone: the exporters write some parts in
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
from export.onnx_export import MINIMUM_ONNXRUNTIME, ONNX_FILE, export_onnx
from export.pt2 import MINIMUM_TORCH, PT2_FILE, export_pt2
from export.torchscript import MINIMUM_LIBTORCH, TORCHSCRIPT_FILE, export_torchscript

ROOT = Path(__file__).resolve().parent.parent

Export = Callable[[torch.nn.Module, dict[str, Any], Limits], bytes]
FORMATS: dict[str, tuple[str, Export]] = {
    "torchscript": (TORCHSCRIPT_FILE, lambda model, metadata, _: export_torchscript(model, metadata)),
    "onnx": (ONNX_FILE, lambda model, metadata, limits: export_onnx(capture(model, limits), metadata)),
    "pt2": (PT2_FILE, lambda model, metadata, limits: export_pt2(capture(model, limits), metadata)),
}


def checkpoint_metadata(checkpoint: Path) -> dict[str, Any]:
    """Build the metadata of the model files that a checkpoint folder leads to."""
    config = read_json(checkpoint / CONFIG_FILE)
    return model_metadata(
        config,
        tokenizer_sha256=sha256_file(checkpoint / TOKENIZER_FILE),
        weights_sha256=sha256_file(checkpoint / WEIGHTS_FILE),
        versions={
            "ferry": __version__,
            "torch": torch.__version__.partition("+")[0],
            "onnx": onnx.__version__,
            "onnxscript": onnxscript.__version__,
        },
        minimum_runtime={"onnxruntime": MINIMUM_ONNXRUNTIME, "libtorch": MINIMUM_LIBTORCH, "torch": MINIMUM_TORCH},
    )


def start_export(format_name: str, checkpoint: Path, folder: Path) -> subprocess.Popen[str]:
    """Start a fresh process that writes one model file into `folder`; its messages come through a pipe."""
    command = [sys.executable, "-m", "export.produce", format_name, str(checkpoint.absolute()), str(folder.absolute())]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def main() -> None:
    format_name, checkpoint, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    file_name, export = FORMATS[format_name]
    config = read_json(checkpoint / CONFIG_FILE)
    data = export(load_model(checkpoint), checkpoint_metadata(checkpoint), model_limits(config))
    try:
        (folder / file_name).write_bytes(data)
    except OSError as error:
        sys.exit(f"{file_name} can't be written: {error.strerror}.")


if __name__ == "__main__":
    main()
