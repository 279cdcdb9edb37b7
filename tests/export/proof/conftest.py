"""A small model in both formats, as bytes by file name, made once; sabotage works on copies of it."""

import pytest

from tests.export.proof.subjects import build_files


@pytest.fixture(scope="session")
def good() -> dict[str, bytes]:
    return build_files()
