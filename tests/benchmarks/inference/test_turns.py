"""Taking turns: who answers when, how often, and what counts."""

from collections import Counter

from benchmarks.inference.turns import LEAST, MOST_ANSWERS, RENEWED, WARM_UP, take_random_turns


class Answering:
    """Takes the seconds that it was told, and notes when it was asked."""

    def __init__(self, name: str, seconds: float, asked: list[tuple[str, int]], first: float = 0.0) -> None:
        self._name, self._seconds, self._asked, self._first = name, seconds, asked, first

    def answer(self, times: int) -> list[float]:
        self._asked.append((self._name, times))
        return [self._seconds + (self._first if place == 0 else 0.0) for place in range(times)]


def test_every_candidate_answers_once_a_repetition_in_an_order_that_changes() -> None:
    asked: list[tuple[str, int]] = []
    waits: list[float] = []
    candidates = {name: Answering(name, 1.0, asked) for name in "abcd"}
    turns: list[int] = []
    seconds = take_random_turns(candidates, 6, after_each=lambda: turns.append(len(asked)), pause=waits.append)
    assert asked[:4] == [(name, WARM_UP) for name in "abcd"]
    orders = [tuple(name for name, _ in asked[start : start + 4]) for start in range(4, 28, 4)]
    assert all(sorted(order) == list("abcd") for order in orders)
    assert len(set(orders)) > 2
    assert turns == [8, 12, 16, 20, 24, 28]
    assert len(waits) == len(asked)
    assert seconds == {name: [1.0] * 6 for name in "abcd"}


def test_fast_candidates_answer_several_times_and_the_first_does_not_count() -> None:
    asked: list[tuple[str, int]] = []
    candidates = {
        "slow": Answering("slow", 10 * LEAST, asked, first=1.0),
        "fast": Answering("fast", LEAST / 4, asked, first=1.0),
        "faster": Answering("faster", LEAST / 1000, asked, first=1.0),
    }
    seconds = take_random_turns(candidates, 2, pause=lambda _: None)
    times = Counter(asked[3:])
    assert times == {("slow", 1): 2, ("fast", 5): 2, ("faster", MOST_ANSWERS + 1): 2}
    assert seconds["fast"] == [LEAST / 4] * 2
    # There is no other answer to count.
    assert seconds["slow"] == [10 * LEAST + 1.0] * 2


def test_candidates_are_renewed_between_repetitions() -> None:
    done: list[str] = []
    take_random_turns(
        {"a": Answering("a", 1.0, [])},
        2 * RENEWED + 1,
        renew=lambda _: done.append("renewed"),
        after_each=lambda: done.append("turn"),
        pause=lambda _: None,
    )
    assert done == [*["turn"] * RENEWED, "renewed", *["turn"] * RENEWED, "renewed", "turn"]
