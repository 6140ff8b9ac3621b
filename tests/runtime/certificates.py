"""A certificate authority for a test, and what it signs for 127.0.0.1."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any


def authority(folder: Path, name: str) -> Path:
    """The certificate of a new authority, in a file; beside it `NAME-server.pem` and its key, for 127.0.0.1."""
    from cryptography import x509  # type: ignore[import-not-found,unused-ignore]  # an extra, as moto has it
    from cryptography.hazmat.primitives.asymmetric import ec  # type: ignore[import-not-found,unused-ignore]  # as above

    top_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    title = f"the authority {name}"
    basic = x509.BasicConstraints(ca=True, path_length=None)
    top = _signed(title, title, top_key, top_key, (basic, True))
    place = x509.SubjectAlternativeName([x509.IPAddress(_loopback())])
    server = _signed("127.0.0.1", title, server_key, top_key, (place, False))
    for file, certificate in ((f"{name}.pem", top), (f"{name}-server.pem", server)):
        (folder / file).write_bytes(_pem(certificate))
    (folder / f"{name}-server.key").write_bytes(_pem_of_key(server_key))
    return folder / f"{name}.pem"


def _loopback() -> Any:
    import ipaddress

    return ipaddress.ip_address("127.0.0.1")


def _signed(subject: str, issuer: str, key: Any, by: Any, extension: tuple[Any, bool]) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes  # type: ignore[import-not-found,unused-ignore]  # an extra
    from cryptography.x509.oid import NameOID  # type: ignore[import-not-found,unused-ignore]  # as above

    def named(title: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])

    now = datetime.datetime.now(datetime.UTC)
    built = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named(issuer))
    built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    return built.add_extension(extension[0], critical=extension[1]).sign(by, hashes.SHA256())


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import (  # type: ignore[import-not-found,unused-ignore]  # an extra
        Encoding,
    )

    return bytes(certificate.public_bytes(Encoding.PEM))


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
