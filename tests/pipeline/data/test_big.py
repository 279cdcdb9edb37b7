"""Many rows take little memory: measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

# What grows with the rows is arrays: 21 bytes a row while reading; then its place, its 64-bit target, its row number
# and its number in the store; and while cutting and comparing, several arrays of 8 bytes. 130 bytes were measured.
BYTES_A_ROW = 200
# A batch, a line buffer, labels and modules that are imported on the way.
FIXED_BYTES = 24 << 20

PROGRAM = """
import json, sys
from pathlib import Path
from pipeline.config import DataConfig
from pipeline.data.own import open_data

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024

file, scratch = sys.argv[1:]
source = open_data(DataConfig(train=(file,)))
before = peak()
dataset = source.load(Path(scratch), show=False)
after = peak()
splits = [dataset.train, dataset.validation, dataset.test]
print(json.dumps({
    "bytes": after - before,
    "rows": [len(split.inputs) for split in splits],
    "targets": [len(split.targets) for split in splits],
    "labels": len(dataset.labels),
    "last": dataset.train.inputs[-1],
    "notes": dataset.notes,
}))
"""


def measure(folder: Path, rows: int, filling: str) -> dict[str, object]:
    file = folder / "big.csv"
    with file.open("w") as made:
        made.write("label,text\n")
        made.writelines(f"class {row * 7919 % 5000},text number {row} {filling}\n" for row in range(rows))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file), str(folder / "scratch")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    measured: dict[str, object] = json.loads(done.stdout)
    return measured


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from Linux's /proc")
@pytest.mark.parametrize(
    ("rows", "filling"),
    [
        # As Python strings these texts would take 110 MB.
        pytest.param(200_000, "x" * 500, id="200,000 long rows"),
        pytest.param(2_000_000, "as long as a message", id="2,000,000 rows", marks=pytest.mark.slow),
    ],
)
def test_memory_is_bounded(tmp_path: Path, rows: int, filling: str) -> None:
    measured = measure(tmp_path, rows, filling)
    assert sum(measured["rows"]) == rows  # type: ignore[call-overload]
    assert measured["rows"] == measured["targets"]
    # Five standard deviations of a binomial share of 0.1.
    for part in measured["rows"][1:]:  # type: ignore[index]
        assert abs(part / rows - 0.1) < 5 * (0.09 / rows) ** 0.5
    assert measured["labels"] == 5000
    assert str(measured["last"]).endswith(filling)
    assert measured["notes"] == ["guessed columns: the text is 'text', the label 'label'."]
    assert measured["bytes"] < FIXED_BYTES + BYTES_A_ROW * rows  # type: ignore[operator]
