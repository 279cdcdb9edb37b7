"""How an input of the grid is built again and run: a program to copy."""

CASE, BACKEND = "{case}", "{backend}"

REBUILD = f"""\
# In a clone of Ferry; the folder is the run's, or the artifact.
import json
from pathlib import Path

from export.model import CONFIG_FILE, model_limits
from export.proof.cases import build_grid
from export.proof.runtimes import load_reference, open_runtime

folder = Path("runs/default")


def read(name: str) -> bytes:
    return next(folder.rglob(name)).read_bytes()


limits = model_limits(json.loads(read(CONFIG_FILE)))
case = next(case for case in build_grid(limits) if case.name == {CASE})
given = open_runtime({BACKEND}, read).run(case.input_ids, case.attention_mask)
wanted = load_reference(read).run(case.input_ids, case.attention_mask)
print(abs(given - wanted).max())
"""
