"""The labels of a data set while it is read: cleaned, counted, and checked for look-alikes."""

import re
import unicodedata
from collections import defaultdict

from export.contract import normalise_text

# A column with more is hardly a label.
MAX_LABELS = 100_000
MAX_LABEL_CHARACTERS = 1000
NONE = -1

_TOLD = 5
_INTEGER = re.compile(r"-?[0-9]+")
# Variation selectors; what else is invisible has the category Cf.
_UNSEEN = re.compile("[\ufe00-\ufe0f]")


class LabelBook:
    """Gives every different label a number, in the order of arrival."""

    def __init__(self, none_label: str = "") -> None:
        """Start without labels; a label equal to `none_label`, if there is one, has the number NONE."""
        self.none_label = normalise_text(none_label)
        self.none_seen = False
        self._numbers: dict[str, int] = {}
        # What was read, as it was read, so that each spelling is cleaned once.
        self._spellings: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """The labels in the order of their numbers."""
        return list(self._numbers)

    def number(self, spelling: str) -> int:
        """Return a label's number; white space is cleaned by the contract's rules for text.

        Raises:
            ValueError: if the label is empty or too long, or holds a control character; a fragment of a sentence.
            TooManyLabelsError: if there are more than MAX_LABELS.
        """
        known = self._spellings.get(spelling)
        if known is not None:
            return known
        label = normalise_text(spelling)
        if not label:
            raise ValueError("the label is empty.")
        if len(label) > MAX_LABEL_CHARACTERS:
            raise ValueError(f"the label must have at most {MAX_LABEL_CHARACTERS:,} characters; got {len(label):,}.")
        # A line or paragraph separator would tear what is written a line a label.
        control = next((char for char in label if unicodedata.category(char) in ("Cc", "Zl", "Zp")), None)
        if control is not None:
            raise ValueError(f"the label {label!r} holds the control character U+{ord(control):04X}.")
        if len(self._spellings) >= MAX_LABELS:
            raise TooManyLabelsError(f"more than {MAX_LABELS:,} different labels")
        if self.none_label and label == self.none_label:
            self.none_seen = True
            number = NONE
        else:
            number = self._numbers.setdefault(label, len(self._numbers))
        self._spellings[spelling] = number
        return number

    def notes(self) -> list[str]:
        """Say what was cleaned, and which labels differ in case or invisibly only."""
        notes = []
        cleaned = [spelling for spelling in self._spellings if spelling != normalise_text(spelling)]
        if cleaned:
            notes.append(
                f"labels whose white space was cleaned: {some_of(cleaned)}; "
                f"{len(self._spellings):,} spellings are {len(set(self._spellings.values())):,} labels."
            )
        folded: dict[str, list[str]] = defaultdict(list)
        for label in self._numbers:
            folded[_seen(label)].append(label)
        alike = [sorted(group) for group in folded.values() if len(group) > 1]
        by_case = [" and ".join(map(repr, group)) for group in alike if len(set(map(str.casefold, group))) == 1]
        # In ASCII, since elsewhere they would look equal in the note, too.
        unseen = [" and ".join(map(ascii, group)) for group in alike if len(set(map(str.casefold, group))) > 1]
        for what, groups in (("in case only", by_case), ("in what can't be seen", unseen)):
            if groups:
                shown = "; ".join(groups[:_TOLD]) + ("; …" if len(groups) > _TOLD else "")
                notes.append(f"labels that differ {what} stay different: {shown}. Is that meant?")
        return notes


def _seen(label: str) -> str:
    """What a reader sees of a label, whatever its case: equal for labels that look alike."""
    if label.isascii():
        return label.casefold()
    shown = "".join(" " if unicodedata.category(char) == "Zs" else char for char in _UNSEEN.sub("", label))
    shown = "".join(char for char in shown if unicodedata.category(char) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", shown).casefold())


class TooManyLabelsError(Exception):
    """There are more different labels than any model is for."""


def sort_labels(labels: list[str]) -> list[str]:
    """Sort by number if all are integers, and by code points if not."""
    if all(map(_INTEGER.fullmatch, labels)):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)


def some_of(labels: list[str]) -> str:
    """Quote the first few labels, and say how many more there are."""
    more = f" and {len(labels) - _TOLD:,} more" if len(labels) > _TOLD else ""
    return ", ".join(map(repr, labels[:_TOLD])) + more
