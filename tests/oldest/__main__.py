"""`python -m tests.oldest`: install the oldest ONNX Runtimes that profiles name, beside the environment's own.

A release without a wheel for this Python is told and left out; its tests are skipped then. Any other reason is an
error.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.oldest import FOLDER, OLDEST

# The last NumPy of the first kind; releases before 1.19 were built for it.
_OLD_NUMPY = "numpy==1.26.4"


def main() -> None:
    for version in OLDEST:
        if (FOLDER / version).is_dir():
            continue
        new = FOLDER / f".{version}-new"
        shutil.rmtree(new, ignore_errors=True)
        minor = int(version.split(".")[1])
        wanted = [f"onnxruntime=={version}", *([_OLD_NUMPY] if minor < 19 else [])]
        said = _install(wanted, new)
        if said is None:
            new.rename(FOLDER / version)
            continue
        shutil.rmtree(new, ignore_errors=True)
        # Where the index can't be reached, there are no versions at all.
        if "No matching distribution found" not in said or "(from versions: none)" in said:
            sys.exit(f"ONNX Runtime {version} can't be installed:\n{said}")
        print(f"ONNX Runtime {version} has no wheel for this Python; its tests are skipped", file=sys.stderr)


def _install(wanted: list[str], folder: Path) -> str | None:
    """Install into a folder, and return what pip says if it can't."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary=:all:", "--target", str(folder), *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


if __name__ == "__main__":
    main()
