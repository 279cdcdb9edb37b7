"""The oldest ONNX Runtimes that profiles name, each in a folder of its own beside the environment's packages."""

import sys
from pathlib import Path

from export.profiles import PROFILES

OLDEST = sorted({profile.minimum_onnxruntime for profile in PROFILES.values()})
FOLDER = Path(sys.prefix) / "oldest"
