"""Whatever bytes a file holds, it is a data set or a sentence."""

import gzip
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipeline.config import DataConfig
from pipeline.data.dataset import SPLITS
from pipeline.data.own import open_data

ROWS = [("ab"[row % 2], f'text "{row}" é') for row in range(12)]


def make_parquet() -> bytes:
    made = io.BytesIO()
    parquet.write_table(pyarrow.table({"label": [row[0] for row in ROWS], "text": [row[1] for row in ROWS]}), made)
    return made.getvalue()


CSV = "label,text\n" + "".join(f'{label},"{text.replace(chr(34), chr(34) * 2)}"\n' for label, text in ROWS)
SOUND = {
    ".csv": CSV.encode(),
    ".csv.gz": gzip.compress(CSV.encode()),
    ".tsv": ("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in ROWS)).encode(),
    ".jsonl": "".join(f'{{"label": "{label}", "text": "é {len(text)}"}}\n' for label, text in ROWS).encode(),
    ".parquet": make_parquet(),
    ".conll": "".join(f"w{row}\tB-x\ny\tO\n\n" for row in range(12)).encode(),
    ".bio": "".join(f"w{row} B-x\ny O\n\n" for row in range(12)).encode(),
}
PIECES = (
    *(b'"', b"\n", b"\r", b"\t", b",", b" ", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80"),
    *(
        b"\xe2\x80\xa8",
        b"\xc2\xa0",
        b"\x0b",
        b"\x1c",
        b"{",
        b"]",
        b"\\",
        b"\\ud800",
        b"null",
        b"1e999",
        b"#",
        b"-DOCSTART-",
        b"I-",
    ),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 9), st.sampled_from(PIECES) | st.binary(max_size=3)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("suffix", SOUND)
@settings(max_examples=60, deadline=None)
@given(CHANGES, st.sampled_from([0.01, 0.9]))
def test_changed_bytes(suffix: str, changes: list[tuple[int, int, bytes]], max_bad_share: float) -> None:
    """At each place some bytes go and some come."""
    data = SOUND[suffix]
    for place, size, piece in changes:
        place %= len(data) + 1
        data = data[:place] + piece + data[place + size :]
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"a{suffix}"
        file.write_bytes(data)
        source = open_data(DataConfig(train=(str(file),), max_bad_share=max_bad_share))
        try:
            dataset = source.load(Path(folder) / "scratch", show=False)
        except ValueError as error:
            refusal = str(error)
        else:
            refusal = "none, it is a data set"
            for split in SPLITS:
                own = getattr(dataset, split)
                assert len(list(own.inputs)) == len(own.targets) >= 1
                assert all(0 <= label < len(dataset.labels) for targets in own.targets for label in [*targets.flat])
    assert refusal.strip()
