"""The zip archives that torch writes, written again so that their bytes depend on nothing but what they say."""

import io
import zipfile
from collections.abc import Collection

_ALIGNMENT = 64
_ZIP_HEADER_SIZE = 30
_EXTRA_HEADER_SIZE = 4


def rewrite_archive(archive: bytes, *, drop: tuple[str, ...], empty: Collection[str] = ()) -> bytes:
    """Write an archive without what differs from folder to folder, and with one date and one order.

    Args:
        archive: what torch wrote.
        drop: the ends of the names of records that are left out.
        empty: the names of records that stay without their content.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
        for name in sorted(source.namelist()):
            if name.endswith(drop):
                continue
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            # Records start at multiples of 64 bytes, as torch writes them, so that the file can be mapped into memory.
            start = buffer.tell() + _ZIP_HEADER_SIZE + len(name.encode()) + _EXTRA_HEADER_SIZE
            padding = -start % _ALIGNMENT
            entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
            target.writestr(entry, b"" if name in empty else source.read(name))
    return buffer.getvalue()
