"""`python -m tests.oldest`: install the oldest ONNX Runtimes that profiles name, beside the environment's own.

A release without a wheel for this Python is told and left out; its tests are skipped then.
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
        if _install(wanted, new):
            new.rename(FOLDER / version)
        else:
            shutil.rmtree(new, ignore_errors=True)
            print(f"ONNX Runtime {version} can't be installed for this Python; its tests are skipped", file=sys.stderr)


def _install(wanted: list[str], folder: Path) -> bool:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary=:all:", "--target", str(folder), *wanted]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    main()
