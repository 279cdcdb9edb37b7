"""Labels are compared where the logits decide them, and rows where rounding decides are counted."""

import numpy as np
import numpy.typing as npt
import pytest

from export.contract import NO_ANSWER, Limits
from export.proof.runtimes import EAGER, BackendError, Runtime
from export.proof.task_metrics import TaskMetrics, TestBatch, check_task

LIMITS = Limits(max_length=4, vocab_size=10)
# Four rows, their labels 0, 1, 0, 1; the last row is a near tie.
LOGITS = np.array([[2.0, -1.0], [-1.0, 2.0], [1.0, 0.0], [1.0, 1.0 + 1e-9]])


class Fixed(Runtime):
    """A backend that always gives the same answer, or fails."""

    def __init__(self, name: str, logits: npt.NDArray[np.float64] | None) -> None:
        self.name = name
        self.logits = logits

    def run(self, input_ids: npt.NDArray[np.int64], attention_mask: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if self.logits is None:
            raise BackendError("it broke")
        return self.logits


def check(logits: npt.NDArray[np.float64] | None) -> TaskMetrics:
    ones = np.ones((4, 3), np.int64)
    batch = TestBatch(input_ids=ones, attention_mask=ones, labels=np.array([0, 1, 1, 1]))
    runtimes = [Fixed(EAGER, LOGITS), Fixed("other", logits)]
    return check_task(Fixed("reference", LOGITS), runtimes, [batch], LIMITS)


def test_accuracy_is_that_of_all_rows_and_near_ties_are_counted() -> None:
    task = check(LOGITS)
    assert (task.rows, task.answers, task.undecided) == (4, 4, 1)
    assert [part.accuracy for part in task.backends] == [0.75, 0.75]
    assert [part.equal_labels for part in task.backends] == [4, 4]
    assert not any(part.failures for part in task.backends)


def test_another_label_in_a_near_tie_is_no_failure() -> None:
    logits = LOGITS.copy()
    logits[3] = [1.0 + 1e-9, 1.0]
    other = check(logits).backends[1]
    assert (other.equal_labels, other.accuracy, other.failures) == (3, 0.5, ())


def test_another_label_elsewhere_is_a_failure_named_by_row() -> None:
    logits = LOGITS.copy()
    logits[2] = [0.0, 1.0]
    other = check(logits).backends[1]
    assert other.accuracy == 1.0
    assert [failure.where for failure in other.failures] == ["test rows 0 to 3 in order of length", "test row 2"]
    assert other.failures[1].reason == "label 1, where eager has 0 by more than twice the limit"


@pytest.mark.parametrize(
    ("logits", "reason"),
    [
        (None, "it broke"),
        (LOGITS[:2], "shape (2, 2), wanted (4, 2)"),
        (LOGITS * np.nan, "8 of 8 values are not finite"),
    ],
    ids=["error", "shape", "nan"],
)
def test_a_backend_that_gives_no_answer_fails(logits: npt.NDArray[np.float64] | None, reason: str) -> None:
    other = check(logits).backends[1]
    assert reason in other.failures[0].reason
    assert other.accuracy < 0.75


def test_only_tokens_that_are_asked_count() -> None:
    logits = np.zeros((2, 3, 2))
    logits[..., 1] = [[1, 1, -1], [-1, 1, 0]]
    batch = TestBatch(
        input_ids=np.ones((2, 3), np.int64),
        attention_mask=np.ones((2, 3), np.int64),
        labels=np.array([[NO_ANSWER, 1, 1], [0, NO_ANSWER, NO_ANSWER]]),
    )
    wrong = logits.copy()
    # One token that is asked, one that is not.
    wrong[0, 1] = [5, 0]
    wrong[0, 0] = [5, 0]
    runtimes = [Fixed(EAGER, logits), Fixed("other", wrong)]
    task = check_task(Fixed("reference", logits), runtimes, [batch], LIMITS)
    assert (task.rows, task.answers, task.undecided) == (2, 3, 0)
    assert [part.accuracy for part in task.backends] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert [part.equal_labels for part in task.backends] == [3, 2]
    assert [failure.where for failure in task.backends[1].failures][1:] == ["test row 0, token 1"]
