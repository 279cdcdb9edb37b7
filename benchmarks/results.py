"""Result files: what they were measured on, and how they are written.

A result names the kind of machine and the libraries' versions, and nothing that tells one machine from another of its
kind.
"""

import os
import platform
import tempfile
from pathlib import Path

from export.proof.prove import runtime_versions

RESULTS = Path(__file__).resolve().parent / "results"


def describe_machine() -> dict[str, str | int]:
    """Return the processor, its cores, the system and Python."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def describe_versions() -> dict[str, str]:
    return runtime_versions()


def write_result(path: Path, data: bytes) -> None:
    """Write a file that is either whole or as it was before.

    Raises:
        OSError: if it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        # A temporary file is its owner's alone; a result is everybody's.
        Path(partial).chmod(0o644)
        os.replace(partial, path)
    finally:
        Path(partial).unlink(missing_ok=True)


def _processor() -> str:
    # Linux says the model here, and nothing in `platform`.
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
