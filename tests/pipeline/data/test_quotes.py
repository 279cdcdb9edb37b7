"""Which TSV files are quoted, and which lines a missing mark swallowed."""

import pytest

from pipeline.data.lines import Line
from pipeline.data.quotes import count_swallowed, find_unexplained


def find(text: str) -> tuple[bool, int | None]:
    lines = text.splitlines(keepends=True)
    return find_unexplained((Line(number, line) for number, line in enumerate(lines, start=1)), longest=1000)


@pytest.mark.parametrize(
    "text",
    [
        'label\ttext\na\t"hello"\n',
        '"label"\t"text"\n"a"\t"b"\n',
        'label\ttext\na\t"he said ""hi"""\n',
        'label\ttext\na\t"with a\ttab"\n',
        'label\ttext\na\t"two\nlines"\n',
        'label\ttext\r\na\t"two\r\nlines"\r\n',
        'label\ttext\na\t""""\n',
        'label\ttext\na\t""',
    ],
)
def test_quoted(text: str) -> None:
    assert find(text) == (True, None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('label\ttext\na\t"hello" he said\n', 2),
        ('label\ttext\na\tb\na\t12" mixes\nb\t"x"\n', 3),
        ('label\ttext\na\the said "hi"\n', 2),
        ('label\ttext\na\t"unbalanced at the start\nb\tmore\n', 2),
        ('label\ttext\n\na\t"\n', 3),
        # As one field over two lines it would be explained, but each of them is a row.
        ('label\ttext\na\t"begins here\nb\tends there"\n', 2),
        ('label\ttext\na\t"quoted"\nb\t "not at the start"\n', 3),
        ('label\ttext\na\t"' + "long\n" * 300 + '"\n', 2),
    ],
)
def test_text(text: str, line: int) -> None:
    assert find(text) == (True, line)


def test_without_marks() -> None:
    assert find("label\ttext\na\tb\n") == (False, None)
    assert find("") == (False, None)


def test_many_marks_take_linear_time() -> None:
    lines = [Line(1, "label\ttext\n"), Line(2, '"' * 100_002 + "x\n")]
    assert find_unexplained(lines, longest=1_000_000) == (True, 2)


def count(*inner: str, header: tuple[str, ...] = ("label", "text"), delimiter: str = ",") -> int:
    record = ['a,"start', *inner, 'end"']
    lines = [Line(number, f"{line}\n") for number, line in enumerate(record, start=1)]
    return count_swallowed(lines, header, delimiter)


@pytest.mark.parametrize(
    ("inner", "swallowed"),
    [
        (["b,row"] * 2, 0),
        (["b,row"] * 3, 3),
        # Nine in ten.
        ([*["b,row"] * 9, "no row"], 10),
        ([*["b,row"] * 8, "no row"], 0),
        # A row may be quoted, where its marks look doubled.
        (['b,""', "c,d", "c,d", *["c,d"] * 9], 12),
        # A mark that is not doubled closes the field, so what follows is none of it.
        (["b,row", "b,row", 'b","c', *["b,row"] * 50], 0),
        (["b,row", "b,row", "b,row", 'b","c', "text"], 3),
        # One field, three, an empty one, a blank in front.
        *(([line] * 20, 0) for line in ("b", "b,c,d", ",c", "b, ", "b, c", " b,c", "\tb,c", "")),
    ],
)
def test_swallowed(inner: list[str], swallowed: int) -> None:
    assert count(*inner) == swallowed


def test_swallowed_in_a_file_of_another_kind() -> None:
    assert count(*["b, c"] * 5, header=("label", " text")) == 5
    assert count(*["b\tc, d"] * 5, delimiter="\t") == 5
    assert count(*["b,c"] * 5, header=("text",)) == 0
    assert count(*["b,,c"] * 5, header=("label", "note", "text")) == 5
