"""The test split as training leaves it for verification, which then needs no data source: one Parquet file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.dataset import Split

TEST_SPLIT_FILE = "test.parquet"

_INPUTS, _TARGETS = "inputs", "targets"
_CHUNK = 10_000


def write_test_split(path: Path, split: Split, *, per_token: bool) -> None:
    """Write texts and label indices, or the words of sentences with one label index a word."""
    text, target = pa.string(), pa.int32()
    schema = pa.schema(
        [(_INPUTS, pa.list_(text) if per_token else text), (_TARGETS, pa.list_(target) if per_token else target)]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, len(split.inputs), _CHUNK):
            chosen = slice(start, start + _CHUNK)
            writer.write_table(
                pa.table(
                    [pa.array(split.inputs[chosen], schema[0].type), pa.array(split.targets[chosen], schema[1].type)],
                    schema=schema,
                )
            )


def read_test_split(path: Path) -> Split:
    """Read the file back.

    Raises:
        ValueError: if it is damaged.
    """
    try:
        table = pq.read_table(path)
        inputs, targets = table[_INPUTS].to_pylist(), table[_TARGETS].to_pylist()
    except (pa.ArrowException, KeyError, OSError) as error:
        raise ValueError(f"{path} can't be read: {error}. Train again.") from None
    if targets and isinstance(targets[0], list):
        return Split(inputs, [np.array(row, np.int64) for row in targets])
    return Split(inputs, np.array(targets, np.int64))
