"""Which column is the text and which the label: as named, or guessed from the usual names."""

from collections.abc import Sequence
from pathlib import Path

TEXT_NAMES = (
    *("text", "sentence", "utterance", "message", "content", "review", "query", "title", "body", "question"),
    *("comment", "document", "description", "tweet", "sms", "prompt"),
)
LABEL_NAMES = (
    *("label", "labels", "intent", "category", "class", "target", "tag", "topic", "sentiment"),
    *("labelname", "label_name", "class_name", "classification", "y"),
)


def choose_columns(path: Path, columns: Sequence[str], *, text: str, label: str) -> tuple[str, str]:
    """Return the names of the text and the label column.

    A column is guessed if it has the first of the usual names, or is the only one with any of them, or if the file has
    two columns and the other one is known. Case does not count when guessing.

    Args:
        path: the file that the message names.
        columns: its columns.
        text: the text column's name, or "" to guess it.
        label: the label column's name, or "" to guess it.

    Raises:
        ValueError: if a named column is not there, a column can't be guessed, or both are the same.
    """
    for name, what in ((text, "text"), (label, "label")):
        if name:
            require_column(path, columns, name, what)
    text = text or _guess([column for column in columns if column != label], TEXT_NAMES)
    label = label or _guess([column for column in columns if column != text], LABEL_NAMES)
    if len(columns) == 2 and bool(text) != bool(label):
        other = next(column for column in columns if column != (text or label))
        text, label = text or other, label or other
    missing = [what for what, name in (("text", text), ("label", label)) if not name]
    if missing:
        raise ValueError(
            f"{path}: can't tell which column is the {' and which the '.join(missing)}; "
            f"its columns are {_list(columns)}. "
            f"Name {'them' if len(missing) > 1 else 'it'} with {' and '.join(f'--{what}' for what in missing)}, "
            f"or in the configuration as {' and '.join(f'data.{what}' for what in missing)}."
        )
    if text == label:
        raise ValueError(f"{path}: the column {text!r} can't be both the text and the label. Name two columns.")
    return text, label


def choose_text(path: Path, columns: Sequence[str], text: str) -> str:
    """Return the name of the text column of a file without labels: as named, guessed, or its only column.

    Raises:
        ValueError: if the named column is not there, or none can be guessed.
    """
    if text:
        require_column(path, columns, text, "text")
    chosen = text or _guess(columns, TEXT_NAMES) or (columns[0] if len(columns) == 1 else "")
    if not chosen:
        raise ValueError(
            f"{path}: can't tell which column is the text; its columns are {_list(columns)}. Name it with --text."
        )
    return chosen


def require_column(path: Path, columns: Sequence[str], name: str, what: str) -> None:
    """Refuse a file without this column.

    Raises:
        ValueError: if `name` is not among `columns`; the message lists them.
    """
    if name not in columns:
        raise ValueError(
            f"{path} has no column {name!r} for the {what}; its columns are {_list(columns)}. Name one with --{what}, "
            f"or in the configuration as data.{what}."
        )


def _guess(columns: Sequence[str], names: Sequence[str]) -> str:
    known = [column for column in columns if column.casefold() in names]
    first = [column for column in known if column.casefold() == names[0]]
    for candidates in (first, known):
        if len(candidates) == 1:
            return candidates[0]
    return ""


def _list(columns: Sequence[str]) -> str:
    return ", ".join(map(repr, columns))
