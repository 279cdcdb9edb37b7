"""Bad rows while they are met: counted, the first of them kept and told, too many of them refused."""

from pipeline.data.lines import BadRow

# So many bad rows are kept; all are counted.
MAX_BAD_ROWS = 10_000
_TOLD = 20
_REFUSED = 10


class Tally:
    """Counts the rows of a split's files, and keeps the first bad ones."""

    def __init__(self, files: str) -> None:
        """Start at zero; `files` is what messages call the files."""
        self.files = files
        self.total = 0
        self.bad = 0
        self.first: list[BadRow] = []

    def add_bad(self, row: BadRow) -> None:
        """Count a bad row; `total` counts it already."""
        self.bad += 1
        if len(self.first) < MAX_BAD_ROWS:
            self.first.append(row)

    def check(self, max_bad_share: float, split: str) -> None:
        """Refuse too many bad rows, and no rows.

        Raises:
            ValueError: lists the first bad rows.
        """
        if self.bad > max_bad_share * self.total:
            told = [str(row) for row in self.first[:_REFUSED]] + self._more(_REFUSED)
            lines = "\n".join(f"  {line}" for line in told)
            hint = " Is the file UTF-8? Convert it if not." if any("UTF-8" in line for line in told) else ""
            raise ValueError(
                f"{self.bad:,} of the {self.total:,} rows of {self.files} can't be used; "
                f"max_bad_share = {max_bad_share} allows fewer:\n{lines}\n"
                f"Repair them, or raise data.max_bad_share.{hint}"
            )
        if self.bad == self.total:
            raise ValueError(f"{self.files} has no rows. Give at least one for {split}.")

    def notes(self) -> list[str]:
        """Say how many rows were left out, and which are the first."""
        if not self.bad:
            return []
        told = [str(row) for row in self.first[:_TOLD]] + self._more(_TOLD)
        return [f"rows of {self.files} that can't be used and were left out: {self.bad:,} of {self.total:,}.", *told]

    def _more(self, told: int) -> list[str]:
        return [f"… and {self.bad - told:,} more"] if self.bad > told else []
