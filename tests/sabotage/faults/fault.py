"""Fault, a row of the table: what is planted, where, and what must refuse it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.sabotage.artifact import Contents, write_folder

Plant = Callable[[Contents], object]

# Which good artifact a fault is planted in, and the one that genuine parts are taken from.
CLASSIFIER, DEEP, TAGGER, OTHER = "classifier", "deep", "tagger", "other"
# Who judges, see tests/sabotage/judges.py.
CHECK, SIGNATURE, PACKAGE, PLACEMENT = "check", "signature", "package", "placement"
Bases = Mapping[str, Contents]


def nothing(_: Contents) -> None:
    """Plant nothing."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planted fault.

    `kind` says in a few words what public reports call it. `plant` changes files before the attacker makes every hash
    fit; `after` changes them behind that, and only SHA256SUMS follows; `lay` puts them on the disk and returns what is
    judged. `moves` tells whether the function moves beyond the budget, so that numbers must refuse it; `check` names
    the structural check that must refuse it, and may be empty where numbers do. `hidden` marks what moves the function
    on inputs that nobody can list, so that no sample meets them: then only a structural check can refuse it.
    `genuine` names files that are taken from another genuine artifact; `rehashed` is False for an attacker who forgets
    the hashes; `judge`, a key of JUDGES, is who refuses it.
    """

    id: str
    kind: str
    plant: Plant = nothing
    after: Plant = nothing
    lay: Callable[[Path, Contents], Path] = write_folder
    base: str = CLASSIFIER
    moves: bool = False
    check: str = ""
    hidden: bool = False
    genuine: tuple[str, ...] = ()
    rehashed: bool = True
    judge: str = CHECK
