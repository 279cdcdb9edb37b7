"""What a check of an artifact found."""

from dataclasses import dataclass
from typing import Literal

# Structural: read from the files. Numeric: seen in what the models, or the tokenizer, answer.
Kind = Literal["structural", "numeric"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong: which check found it, of which kind that check is, and a sentence for a person."""

    check: str
    kind: Kind
    problem: str


def structural(check: str, problems: list[str] | tuple[str, ...]) -> list[Finding]:
    return [Finding(check=check, kind="structural", problem=problem) for problem in problems]


def numeric(check: str, problems: list[str] | tuple[str, ...]) -> list[Finding]:
    return [Finding(check=check, kind="numeric", problem=problem) for problem in problems]
