"""Types of paths for the command line's options: what can't be meant is refused before anything is done."""

import os
from pathlib import Path
from typing import Any

import click


class NamedPath(click.Path):
    """A path that is not the empty word, which would become the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse the empty word."""
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class WorkFolder(NamedPath):
    """A folder that stages write into: some libraries write only to places whose whole path is UTF-8."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a path that is not UTF-8, from the root on."""
        folder = super().convert(value, param, ctx)
        raw = os.fsencode(folder if folder.is_absolute() else os.path.join(os.getcwd(), folder))
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"the path's name must be UTF-8; got {raw!r}. Name another folder.", param, ctx)
        return folder
