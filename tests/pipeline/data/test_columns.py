"""Guessing the text and the label column."""

import re
from pathlib import Path

import pytest

from pipeline.data.columns import choose_columns

FILE = Path("a.csv")


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["label", "text"], ("text", "label")),
        (["ID", "Intent", "Utterance"], ("Utterance", "Intent")),
        (["TEXT", "class"], ("TEXT", "class")),
        # The first of the usual names wins over others that are known too.
        (["title", "text", "label", "topic"], ("text", "label")),
        (["review", "x17"], ("review", "x17")),
        (["x17", "sentiment"], ("x17", "sentiment")),
        (["a", "b", "message", "category"], ("message", "category")),
    ],
)
def test_guesses(columns: list[str], chosen: tuple[str, str]) -> None:
    assert choose_columns(FILE, columns, text="", label="") == chosen


def test_named_columns_win() -> None:
    columns = ["label", "text", "topic", "title"]
    assert choose_columns(FILE, columns, text="title", label="topic") == ("title", "topic")
    assert choose_columns(FILE, columns, text="title", label="") == ("title", "label")
    # A label column that is called like a text is not guessed as the text.
    assert choose_columns(FILE, ["title", "text"], text="", label="text") == ("title", "text")


@pytest.mark.parametrize(
    ("columns", "text", "label", "message"),
    [
        (
            ["a", "b"],
            "",
            "",
            "a.csv: can't tell which column is the text and which the label; its columns are 'a', 'b'. "
            "Name them with --text and --label, or in the configuration as data.text and data.label.",
        ),
        (
            ["text", "intent", "category"],
            "",
            "",
            "a.csv: can't tell which column is the label; its columns are 'text', 'intent', 'category'. "
            "Name it with --label, or in the configuration as data.label.",
        ),
        (["title", "body", "label"], "", "", "can't tell which column is the text;"),
        (["text"], "", "", "can't tell which column is the label;"),
        (
            ["text", "label"],
            "txt",
            "",
            "a.csv has no column 'txt' for the text; its columns are 'text', 'label'. "
            "Name one with --text, or in the configuration as data.text.",
        ),
        (["text", "label"], "", "Label", "a.csv has no column 'Label' for the label;"),
        (["text", "label"], "text", "text", "the column 'text' can't be both the text and the label."),
    ],
)
def test_refuses(columns: list[str], text: str, label: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        choose_columns(FILE, columns, text=text, label=label)
