"""Which files an artifact has, and SHA256SUMS, which follows from them."""

from collections.abc import Iterable, Mapping

from export.contract import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TOKENIZER_JSON_FILE
from export.errors import FerryError
from export.model import CONFIG_FILE, WEIGHTS_FILE
from export.onnx_export import ONNX_FILE
from export.precision_files import OPTIONAL_FILES
from export.pt2 import PT2_FILE
from export.torchscript import TORCHSCRIPT_FILE

MANIFEST_FILE = "manifest.json"
GOLDENS_FILE = "goldens.json"
VERIFICATION_FILE = "verification.json"
# The same for people to look at; it follows from the former, to the byte.
VERIFICATION_PAGE = "verification.html"
CARD_FILE = "README.md"
# How good the model is, label by label; and two pictures of it, which the card shows.
EVALUATION_FILE = "evaluation.json"
CONFUSION_FILE = "confusion.png"
RELIABILITY_FILE = "reliability.png"
SUMS_FILE = "SHA256SUMS"

# The files that verification judges.
VERIFIED_FILES = (
    CONFIG_FILE,
    ONNX_FILE,
    TORCHSCRIPT_FILE,
    PT2_FILE,
    WEIGHTS_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_JSON_FILE,
)
# The files that are packaged as training wrote them.
TOLD_FILES = (EVALUATION_FILE, CONFUSION_FILE, RELIABILITY_FILE)
# The files whose hashes stand in the manifest.
BOUND_FILES = (*VERIFIED_FILES, *TOLD_FILES, CARD_FILE, GOLDENS_FILE, VERIFICATION_FILE, VERIFICATION_PAGE)
ALL_FILES = (*BOUND_FILES, MANIFEST_FILE, SUMS_FILE)
# What an artifact may hold: with the files of other precisions, which verification judges too and the manifest binds.
KNOWN_FILES = (*ALL_FILES, *OPTIONAL_FILES)


class ArtifactError(FerryError):
    """An artifact is not what it says it is; every finding is in `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def optional_in(names: Iterable[str]) -> list[str]:
    """Return which of OPTIONAL_FILES are among some names."""
    there = set(names)
    return [name for name in OPTIONAL_FILES if name in there]


def sums_text(hashes: Mapping[str, str]) -> str:
    """Write SHA256SUMS, which `sha256sum -c` reads, from the hash of every other file of the artifact."""
    return "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
