"""The local certificate authority, and the server's certificate. They are created at the first start."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.server.auth import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_DAYS = 3650
SERVER_DAYS = 397
RENEW_DAYS = 30
"""The server's certificate is renewed when it is valid for fewer days."""


def ensure(folder: Path, hosts: list[str]) -> ssl.SSLContext:
    """Return the server's TLS context, with a certificate for these hosts."""
    ca, certificate, key = folder / "ca.crt", folder / "server.crt", folder / "server.key"
    if not _good(ca, certificate, key, hosts):
        _make(folder, hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


def _good(ca: Path, certificate: Path, key: Path, hosts: list[str]) -> bool:
    if not (ca.exists() and certificate.exists() and key.exists()):
        return False
    try:
        named = {_canonical(value) for _, value in _read(certificate).get("subjectAltName", ())}
        lasting = all(_days_left(each) > RENEW_DAYS for each in (ca, certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError, ValueError):
        return False
    return lasting and {_canonical(host) for host in hosts} <= named


def _read(certificate: Path) -> dict[str, Any]:
    # The standard library reads enough of a certificate for this, and is imported anyway.
    found: dict[str, Any] = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    return found


def _days_left(certificate: Path) -> float:
    seconds = ssl.cert_time_to_seconds(_read(certificate)["notAfter"]) - datetime.now(UTC).timestamp()
    return seconds / 86400


def _canonical(host: str) -> str:
    """Return an address in its canonical form, or a name as it is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _make(folder: Path, hosts: list[str]) -> None:
    # Imported here, because it takes longer than the rest of a start.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    def pem(private: EllipticCurvePrivateKey) -> bytes:
        return private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    ca_path, ca_key_path = folder / "ca.crt", folder / "ca.key"
    if _is_usable(ca_path, ca_key_path):
        ca_key = serialization.load_pem_private_key(ca_key_path.read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        ca = x509.load_pem_x509_certificate(ca_path.read_bytes())
    else:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Rota local CA")
        builder = _builder(name, name, ca_key, CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(ca=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
        ca = builder.add_extension(identifier, critical=False).sign(ca_key, hashes.SHA256())
        write_private(ca_key_path, pem(ca_key))
        write_private(ca_path, ca.public_bytes(serialization.Encoding.PEM))
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("Rota server"), ca.subject, key, SERVER_DAYS)
    builder = builder.add_extension(x509.SubjectAlternativeName([_general(h) for h in hosts]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(ca=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = builder.add_extension(issuer, critical=False).sign(ca_key, hashes.SHA256())
    write_private(folder / "server.key", pem(key))
    write_private(folder / "server.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _is_usable(ca: Path, key: Path) -> bool:
    """Report whether the certificate authority exists and will be valid long enough."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(ca, key)
        return _days_left(ca) > RENEW_DAYS
    except (ssl.SSLError, OSError, ValueError):
        return False


def _name(common: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    # An hour back, for clocks that differ a little.
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))


def _usage(*, ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _general(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
