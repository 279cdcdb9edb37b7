"""Standard input, output and error as a command line must treat them: closed, full, or left by their reader."""

import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

# The file name in errors of writing there.
STANDARD_OUTPUT = "standard output"


def drop_output() -> None:
    # Python writes what is left at its end, and must not complain again.
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(line: str) -> None:
    # Where standard error can't be written either, the exit code is all that is left to say.
    with suppress(OSError):
        click.echo(line, err=True)


class NamedOutput(io.FileIO):
    """A descriptor whose errors of writing have a name, by which they are told from those of the disk."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        """Write as `io.FileIO` does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def name_output() -> None:
    """Have the errors of standard output tell that they are its own."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout is sys.__stdout__:
        sys.stdout.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(NamedOutput(sys.stdout.fileno(), "w", closefd=False)),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )


def open_closed_streams() -> None:
    """Put the null device where standard input, output or error is closed, so that no other file takes its number.

    `sys.stderr` is opened too; a closed input or output stays None in `sys`, since `predict` refuses it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            # Child processes inherit it.
            os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it stays open to the end
