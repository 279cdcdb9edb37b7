"""What the commands of `make bench` share: where the peers live, and how a command ends."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from export.errors import FerryError
from pipeline.cli import MISUSED, WRONG
from pipeline.run import ROOT

PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"


@contextmanager
def told_failures(command: str) -> Iterator[None]:
    """Turn expected failures into one sentence on standard error and an exit code, as `ferry` does.

    Raises:
        SystemExit: WRONG if something was tried and failed, MISUSED if it was asked wrongly or can't be written.
    """
    try:
        yield
    except (FerryError, ValueError, OSError) as error:
        click.echo(f"{command}: {error}", err=True)
        sys.exit(WRONG if isinstance(error, FerryError) else MISUSED)
