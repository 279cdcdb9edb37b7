"""JUDGES: who refuses a fault. Nearly always it is the consumer's check; some faults never become an artifact."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from export.artifact.check import judge
from export.artifact.findings import Finding, structural
from export.artifact.sign import sign_artifact
from export.errors import FerryError
from export.proof.placement import PROVIDERS, Assignment, judge_placement
from pipeline.package import package
from tests.sabotage.artifact import Contents, write_folder
from tests.sabotage.faults.fault import CHECK, PACKAGE, PLACEMENT, SIGNATURE

# What ONNX Runtime is asked for where it runs on CUDA.
_TF32_OFF = {"use_tf32": "0"}

Judge = Callable[[Path, Contents], list[Finding]]


def judge_signed(path: Path, good: Contents) -> list[Finding]:
    """Judge an artifact for a consumer who requires the signature; there is the one of the good artifact."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    with tempfile.TemporaryDirectory() as scratch:
        private, public = Path(scratch) / "key.pem", Path(scratch) / "key.pub"
        key = ec.generate_private_key(ec.SECP256R1())
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        signature, _ = sign_artifact(write_folder(Path(scratch) / "good", good), private)
        return judge(path, public_key=public, signature=signature).findings


def judge_run(path: Path, _: Contents) -> list[Finding]:
    """Package a run folder, and return why that was refused."""
    try:
        package(path, "1.0.0", path.parent / "artifacts")
    except (FerryError, ValueError) as error:
        return structural(PACKAGE, [str(error)])
    return []


def judge_table(path: Path, _: Contents) -> list[Finding]:
    """Judge an assignment table in a file, for CUDA."""
    document = json.loads(path.read_text())
    rows = [Assignment(**row) for row in document["rows"]]
    placement = judge_placement(rows, PROVIDERS["cuda"], options=document["options"], required_options=_TF32_OFF)
    return structural(PLACEMENT, placement.faults)


JUDGES: dict[str, Judge] = {
    CHECK: lambda path, _: judge(path).findings,
    SIGNATURE: judge_signed,
    PACKAGE: judge_run,
    PLACEMENT: judge_table,
}
