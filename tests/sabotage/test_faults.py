"""One fault of each kind is refused, and some good artifacts are accepted; `make sabotage` tries all of both."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sabotage.faults import FAULTS
from tests.sabotage.faults.fault import Fault
from tests.sabotage.good import GOOD
from tests.sabotage.matrix import Outcome, build_bases, judge_all, open_pool, try_all, try_fault
from tests.sabotage.measure import Movement


def one_of_each_kind() -> dict[str, int]:
    """Return for each kind the place of a fault of it; TorchScript first, as its exporter is the quickest."""
    kinds: dict[str, int] = {}
    for place in sorted(range(len(FAULTS)), key=lambda place: not FAULTS[place].id.startswith("pt-")):
        kinds.setdefault(FAULTS[place].kind, place)
    return kinds


KINDS = one_of_each_kind()
ACCEPTED = (GOOD[1], GOOD[10], GOOD[-1])


@pytest.fixture(scope="module")
def bases():
    return build_bases()


@pytest.fixture(scope="module")
def pool(bases) -> Iterator:
    with open_pool(bases) as pool:
        yield pool


@pytest.fixture(scope="module")
def outcomes(pool) -> dict[str, Outcome]:
    return {outcome.fault.kind: outcome for outcome in try_all(pool, list(KINDS.values()))}


@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_of_each_kind_is_refused(kind: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[kind].missing == "", outcomes[kind]


def test_good_artifacts_are_accepted(pool) -> None:
    assert [findings for _, findings in judge_all(pool, ACCEPTED)] == [[]] * len(ACCEPTED)


def test_the_table_is_as_large_as_promised() -> None:
    assert len(FAULTS) >= 60
    assert len(KINDS) >= 40
    assert len({fault.id for fault in FAULTS}) == len(FAULTS)
    assert len({str(recipe) for recipe in GOOD}) == len(GOOD) == 100


def test_a_fault_that_nothing_refuses_is_told() -> None:
    fault = Fault(id="none", kind="none", moves=True)
    still, moved = Movement(0.5), Movement(2.0)
    assert "the table says otherwise" in Outcome(fault, still, ()).missing
    assert "no numeric check refused it" in Outcome(fault, moved, ()).missing
    assert "no structural check refused it" in Outcome(replace(fault, moves=False), still, ()).missing
    assert "it could not be tried: no label" in Outcome(fault, moved, (), "no label").missing
    assert "'weights' did not refuse it" in Outcome(replace(fault, moves=False, check="weights"), still, ()).missing


def test_the_attacker_himself_changes_nothing(bases) -> None:
    """Every hash that he writes anew is what it was where nothing was planted."""
    outcome = try_fault(Fault(id="none", kind="none"), bases, {})
    assert outcome.findings == ()
    assert outcome.movement.budgets is None
