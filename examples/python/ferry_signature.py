"""Verify the signature of a Ferry artifact; copy this file too if your service requires one. Needs cryptography.

The signature is an OpenSSF model-signing bundle, made with an elliptic-curve key pair: a DSSE envelope around an
in-toto statement of each file's SHA-256.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from ferry_artifact import ArtifactError, get, parse_json

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
# The hash that goes with each curve.
HASHES = {"secp256r1": hashes.SHA256(), "secp384r1": hashes.SHA384(), "secp521r1": hashes.SHA512()}


def check_signature(file: Path, public_key: Path, digests: Mapping[str, str]) -> None:
    """Check that a signature is by a key and about the files of an artifact.

    Args:
        file: the signature.
        public_key: the key in PEM, which came another way than the artifact.
        digests: the SHA-256 of each file of the artifact.

    Raises:
        ArtifactError: if it is not, says why.
    """
    key = _load_key(public_key)
    document, name = _load(file), str(file)
    _require(document, name, MEDIA_TYPE, "mediaType")
    _require(document, name, PAYLOAD_TYPE, "dsseEnvelope", "payloadType")
    fingerprint = get(document, name, "a string", "verificationMaterial", "publicKey", "hint")
    signatures = get(document, name, "a list", "dsseEnvelope", "signatures")
    if len(signatures) != 1:
        raise ArtifactError(f"{name}: dsseEnvelope.signatures must hold one signature; got {len(signatures)}.")
    signature = _decode(get(signatures[0], name, "a string", "sig"), f"{name}: sig")
    payload = _decode(get(document, name, "a string", "dsseEnvelope", "payload"), f"{name}: dsseEnvelope.payload")

    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if fingerprint != hashlib.sha256(pem).hexdigest():
        raise ArtifactError(f"{name} was made with another key than {public_key}.")
    signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    try:
        key.verify(signature, signed, ECDSA(HASHES[key.curve.name]))
    except InvalidSignature:
        raise ArtifactError(f"{name} is not a signature by {public_key}: it was forged or damaged.") from None
    _compare(_read_statement(payload, name), digests, name)


def _load_key(file: Path) -> EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(file.read_bytes())
    except OSError as error:
        raise ArtifactError(f"{file} can't be read: {error.strerror}.") from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in HASHES:
        raise ArtifactError(f"{file} must be a public key in PEM, on the curve P-256, P-384 or P-521.")
    return key


def _load(file: Path) -> object:
    if not file.is_file():
        raise ArtifactError(f"there is no signature {file}. Fetch it with the artifact.")
    try:
        return parse_json(file.read_bytes(), str(file))
    except OSError as error:
        raise ArtifactError(f"{file} can't be read: {error.strerror}.") from None


def _read_statement(payload: bytes, name: str) -> dict[str, str]:
    """Return the SHA-256 of each file that a signed statement is about."""
    statement = parse_json(payload, name)
    _require(statement, name, STATEMENT_TYPE, "_type")
    _require(statement, name, PREDICATE_TYPE, "predicateType")
    _require(statement, name, "files", "predicate", "serialization", "method")
    signed = {}
    for resource in get(statement, name, "a list", "predicate", "resources"):
        _require(resource, name, "sha256", "algorithm")
        signed[get(resource, name, "a string", "name")] = get(resource, name, "a string", "digest")
    return signed


def _compare(signed: Mapping[str, str], digests: Mapping[str, str], name: str) -> None:
    for file in sorted(signed.keys() | digests.keys()):
        if signed.get(file) != digests.get(file):
            raise ArtifactError(
                f"{name} is about other files than these, of which {json.dumps(file)} is the first: "
                "it was made for another artifact, or this one was changed."
            )


def _require(document: object, name: str, wanted: str, *keys: str) -> None:
    if (got := get(document, name, "a string", *keys)) != wanted:
        raise ArtifactError(f"{name}: {'.'.join(keys)} must be {wanted}; got {json.dumps(got)}.")


def _decode(text: str, what: str) -> bytes:
    # The library overlooks some padding that is too long.
    if len(text) % 4 or not re.fullmatch("[A-Za-z0-9+/]*={0,2}", text):
        raise ArtifactError(f"{what} must be base64.")
    return base64.b64decode(text)
