"""The matrix: every fault planted, measured and judged; then good artifacts, judged by the same judge."""

import gc
import logging
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import click
import torch
from tqdm import tqdm

from export.artifact.findings import Finding
from export.contract import TOKEN_CLASSIFICATION
from tests.export.proof.subjects import LABELS
from tests.sabotage.artifact import Contents, Recipe, build_artifact, write_folder
from tests.sabotage.faults import FAULTS
from tests.sabotage.faults.fault import CHECK, CLASSIFIER, DEEP, OTHER, TAGGER, Bases, Fault
from tests.sabotage.good import GOOD
from tests.sabotage.judges import JUDGES
from tests.sabotage.measure import Movement, Yardstick
from tests.sabotage.rehash import rehash, seal

R = TypeVar("R")

WORKERS = 2
# The longest sequence is one longer than where a slice is frozen.
_SHAPE = {"max_len": 12}
# The last two are never the answer: faults exchange what no golden shows.
_LABELS = (*LABELS, "EUPL-1.2", "Unlicense")
RECIPES = {
    CLASSIFIER: Recipe(seed=1, labels=_LABELS, silent=2, encoder=_SHAPE),
    # For faults that need a second layer, or a threshold that leaves some of the goldens without an answer; and
    # those of files of other precisions.
    DEEP: Recipe(seed=1, labels=_LABELS, silent=2, threshold=0.5, precisions=True, encoder={**_SHAPE, "num_layers": 2}),
    OTHER: Recipe(seed=2, labels=tuple(reversed(_LABELS)), encoder=_SHAPE),
    TAGGER: Recipe(task=TOKEN_CLASSIFICATION, labels=("O", "B-x", "I-x"), threshold=0.0, encoder=_SHAPE),
}


@dataclass(frozen=True)
class Outcome:
    """What came of a fault."""

    fault: Fault
    movement: Movement
    findings: tuple[Finding, ...]
    # Why it could not be tried.
    error: str = ""

    def checks(self, kind: str) -> list[str]:
        """Return the checks of a kind that refused it, each once, in order."""
        return list(dict.fromkeys(finding.check for finding in self.findings if finding.kind == kind))

    @property
    def missing(self) -> str:
        """What should have refused it and did not, or what the table says wrongly; empty if all is well."""
        if self.error:
            return f"it could not be tried: {self.error}"
        if self.movement.beyond != self.fault.moves:
            return f"it moves the function by {self.movement} budgets; the table says otherwise"
        if self.fault.moves and not self.checks("numeric"):
            return "it moves the function beyond the budget, and no numeric check refused it"
        if self.fault.check and self.fault.check not in self.checks("structural"):
            return f"the check {self.fault.check!r} did not refuse it"
        if not self.fault.moves and not self.checks("structural"):
            return "no structural check refused it"
        return ""


def build_bases() -> dict[str, Contents]:
    """Build the good artifacts that faults are planted in, by name."""
    with open_pool({}) as pool:
        return dict(zip(RECIPES, pool.map(build_artifact, RECIPES.values()), strict=True))


def try_fault(fault: Fault, bases: Bases, yardsticks: dict[str, Yardstick]) -> Outcome:
    """Plant a fault in a copy of its good artifact, measure it, and have it judged."""
    if fault.base not in yardsticks:
        yardsticks[fault.base] = Yardstick(bases[fault.base])
    contents = dict(bases[fault.base])
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # The exporters' own remarks on the attacker's models.
        warnings.simplefilter("ignore")
        if fault.genuine:
            contents.update({name: bases[OTHER][name] for name in fault.genuine})
        fault.plant(contents)
        if fault.rehashed:
            rehash(contents)
        fault.after(contents)
        if fault.rehashed:
            seal(contents)
        path = fault.lay(Path(folder) / "artifact", contents)
        movement = yardsticks[fault.base].measure(contents)
        return Outcome(fault, movement, tuple(JUDGES[fault.judge](path, bases[fault.base])))


def judge_good(recipe: Recipe) -> list[Finding]:
    """Build a good artifact and return what the judge finds; nothing, if the judge is right."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        contents = build_artifact(recipe)
        return JUDGES[CHECK](write_folder(Path(folder) / "artifact", contents), contents)


_bases: dict[str, Contents] = {}
_yardsticks: dict[str, Yardstick] = {}


def _start(bases: dict[str, Contents]) -> None:
    # Two processes, a thread each.
    torch.set_num_threads(1)
    # An export makes millions of objects; looking through all of them so often takes a tenth of its time.
    gc.set_threshold(20_000, 20, 50)
    # The exporters' own remarks.
    logging.disable(logging.WARNING)
    _bases.update(bases)


def _try_in_worker(number: int) -> tuple[Movement, tuple[Finding, ...], str]:
    try:
        outcome = try_fault(FAULTS[number], _bases, _yardsticks)
    except Exception as error:  # one row that is wrong must not keep the others from being seen
        traceback.print_exc()
        return Movement(None), (), repr(error)
    return outcome.movement, outcome.findings, ""


def open_pool(bases: Bases) -> ProcessPoolExecutor:
    """Start the processes that plant and judge."""
    return ProcessPoolExecutor(WORKERS, get_context("spawn"), _start, (bases,))


def try_all(pool: ProcessPoolExecutor, numbers: Sequence[int]) -> Iterator[Outcome]:
    """Try faults, by their places in FAULTS, and yield what came of each, in order."""
    found = _watch(pool.map(_try_in_worker, numbers), len(numbers), "faults")
    for number, (movement, findings, error) in zip(numbers, found, strict=True):
        yield Outcome(FAULTS[number], movement, findings, error)


def judge_all(pool: ProcessPoolExecutor, recipes: Sequence[Recipe]) -> Iterator[tuple[Recipe, list[Finding]]]:
    """Judge good artifacts, and yield what was found in each, in order."""
    # Four follow each other in one process: they have one configuration, and the judge exports it anew only once.
    found = pool.map(judge_good, recipes, chunksize=4)
    yield from zip(recipes, _watch(found, len(recipes), "good artifacts"), strict=True)


def run_matrix(numbers: Sequence[int], recipes: Sequence[Recipe], write: Callable[[str], object]) -> bool:
    """Try faults and good artifacts, write the matrix, and return whether all is as it should be.

    Progress goes to the standard error.
    """
    refused = accepted = 0
    with open_pool(build_bases()) as pool:
        write(_line("fault", "stands for", "judged by", "moved", "refused by numbers", "refused by structure"))
        for outcome in try_all(pool, numbers):
            refused += not outcome.missing
            write(_row(outcome))
        for recipe, findings in judge_all(pool, recipes):
            accepted += not findings
            for finding in findings:
                write(f"REFUSED, a good one: {recipe}: {finding.check}: {finding.problem}")
    write(f"{refused} of {len(numbers)} faults refused, {accepted} of {len(recipes)} good artifacts accepted")
    return refused == len(numbers) and accepted == len(recipes)


def _watch(results: Iterator[R], total: int, label: str) -> Iterator[R]:
    watched: Iterator[R] = tqdm(results, desc=f"sabotage: {label}", total=total, leave=False, disable=None)
    return watched


def _row(outcome: Outcome) -> str:
    fault = outcome.fault
    line = _line(
        fault.id,
        fault.kind,
        fault.judge,
        f"{outcome.movement}{' *' if fault.hidden else ''}",
        ", ".join(outcome.checks("numeric")) or "-",
        ", ".join(outcome.checks("structural")) or "-",
    )
    return f"{line}\n  NOT REFUSED: {outcome.missing}" if outcome.missing else line


def _line(*cells: str) -> str:
    widths = (32, 44, 10, 8, 28)
    return "  ".join(
        [*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), *cells[len(widths) :]]
    ).rstrip()


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Plant every fault and judge it, then judge 100 good artifacts; exit code 1 unless all is as it should be.

    With NAMES, only the faults whose names hold one of them, and no good artifact.
    """
    numbers = [number for number, fault in enumerate(FAULTS) if not names or any(part in fault.id for part in names)]
    if not numbers:
        raise click.UsageError(f"no fault's name holds {' or '.join(names)}.")
    ok = run_matrix(numbers, [] if names else GOOD, lambda line: click.echo(line))
    sys.exit(0 if ok else 1)
