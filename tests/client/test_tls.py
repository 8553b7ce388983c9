"""TLS: whom the client trusts, and what it shows."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rota.client.credentials import Credential, Fixed
from rota.client.failures import ConnectionFailed, NotConnected
from rota.client.target import KubeconfigError, Tls
from rota.server import tls as server_tls
from tests.client.scripted import Exchange, answer, client_of, serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and a certificate of `there.example` by it."""
    folder = tmp_path_factory.mktemp("authority")
    server_tls.ensure(folder, ["there.example"])
    return folder


@pytest.fixture
def accepting(authority: Path) -> ssl.SSLContext:
    """The server's side: it wants a certificate of a client if it has one, and then a good one."""
    context = server_tls.ensure(authority, ["there.example"])
    context.load_verify_locations(authority / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def trusting(authority: Path) -> Tls:
    return Tls((authority / "ca.crt").read_text())


def client_certificate(authority: Path, name: str) -> str:
    """A certificate with its key, as PEM."""
    ca_key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    ca = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return (certificate.public_bytes(pem) + key.private_bytes(pem, *plain)).decode()


async def who(exchange: Exchange) -> None:
    """Answer with the name in the client's certificate."""
    shown = exchange.writer.get_extra_info("peercert") or {"subject": ((("commonName", "nobody"),),)}
    await answer(200, shown["subject"][0][0][1].encode())(exchange)


async def test_a_server_of_a_trusted_authority_is_spoken_to(accepting: ssl.SSLContext, trusting: Tls) -> None:
    async with (
        serving(who, who, tls=accepting) as server,
        client_of(server, tls=trusting, server_name="there.example") as backend,
    ):
        assert (await backend.raw("GET", "/")).body == b"nobody"
        await backend.raw("GET", "/")
        assert server.connections == 1


async def test_a_server_of_another_authority_is_not(accepting: ssl.SSLContext, tmp_path: Path) -> None:
    server_tls.ensure(tmp_path, ["there.example"])
    other = Tls((tmp_path / "ca.crt").read_text())
    async with (
        serving(who, tls=accepting) as server,
        client_of(server, tls=other, server_name="there.example") as backend,
    ):
        with pytest.raises(NotConnected, match=r"its certificate is not trusted: .*; check the certificate-authority"):
            await backend.raw("GET", "/")
        assert not server.seen


async def test_a_server_of_another_name_is_not(accepting: ssl.SSLContext, trusting: Tls) -> None:
    async with serving(who, tls=accepting) as server, client_of(server, tls=trusting) as backend:
        with pytest.raises(NotConnected, match="not trusted: IP address mismatch"):
            await backend.raw("GET", "/")
        assert not server.seen


async def test_a_check_that_is_turned_off_is_not_made(accepting: ssl.SSLContext) -> None:
    async with serving(who, tls=accepting) as server, client_of(server, tls=Tls(insecure=True)) as backend:
        assert (await backend.raw("GET", "/")).status == 200


async def test_a_client_certificate_is_shown(accepting: ssl.SSLContext, trusting: Tls, authority: Path) -> None:
    shown = Fixed(Credential(certificate=client_certificate(authority, "me")))
    async with (
        serving(who, tls=accepting) as server,
        client_of(server, tls=trusting, server_name="there.example", credentials=shown) as backend,
    ):
        assert (await backend.raw("GET", "/")).body == b"me"


async def test_a_new_certificate_is_shown_on_new_connections(
    accepting: ssl.SSLContext, trusting: Tls, authority: Path
) -> None:
    class Renewed:
        now = Credential(certificate=client_certificate(authority, "before"))

        async def current(self) -> Credential:
            return self.now

        def refuse(self, credential: Credential) -> bool:
            return False

    shown = Renewed()
    async with (
        serving(who, who, tls=accepting) as server,
        client_of(server, tls=trusting, server_name="there.example", credentials=shown) as backend,
    ):
        assert (await backend.raw("GET", "/")).body == b"before"
        shown.now = Credential(certificate=client_certificate(authority, "after"))
        assert (await backend.raw("GET", "/")).body == b"after"


async def test_a_certificate_that_the_server_refuses_is_told(
    accepting: ssl.SSLContext, trusting: Tls, tmp_path: Path
) -> None:
    server_tls.ensure(tmp_path, ["there.example"])
    shown = Fixed(Credential(certificate=client_certificate(tmp_path, "stranger")))
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with (
        serving(who, tls=accepting) as server,
        client_of(server, tls=trusting, server_name="there.example", credentials=shown) as backend,
    ):
        with pytest.raises(ConnectionFailed):
            await backend.raw("POST", "/")
        assert not server.seen


def test_what_is_no_certificate_is_told_as_such(authority: Path) -> None:
    with pytest.raises(KubeconfigError, match="authority is not in PEM form"):
        Tls("nonsense").context("")
    with pytest.raises(KubeconfigError, match="client certificate and its key"):
        Tls((authority / "ca.crt").read_text()).context("nonsense")
