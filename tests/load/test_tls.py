"""TLS goes through asyncio's own transport: the same records, with the clock it has."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest

from peagle_bench.load.driver import Limits, drive
from peagle_bench.load.transport import Endpoint
from tests.conftest import END, HEAD, framed
from tests.load.test_client import DONE, GOOD, event, requests


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate for 127.0.0.1 that this process trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "pair.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


async def over_tls(certificate: Path, parts: list[tuple[float, bytes]], count: int, limits: Limits):  # type: ignore[no-untyped-def]
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().lower().split("\r\n")
                await reader.readexactly(
                    next(int(v[15:]) for v in lines if v.startswith("content-length:"))
                )
                for delay_s, data in parts:
                    await asyncio.sleep(delay_s)
                    writer.write(data)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    driven = await drive(Endpoint(f"https://127.0.0.1:{port}"), requests(count), 2, limits)
    server.close()
    return driven


def test_requests_over_tls_are_whole_and_say_which_clock_they_have(certificate: Path) -> None:
    got = asyncio.run(over_tls(certificate, [(0.02, GOOD)], 6, Limits(5, 5)))
    assert [r.error for r in got.records] == [None] * 6
    assert [r.completion_tokens for r in got.records] == [1] * 6
    assert got.client.clock == "user"
    assert got.client.lag_p99_ns is None
    assert all(r.chunk_ns[0] - r.sent_ns >= 18_000_000 for r in got.records)


def test_silence_over_tls_is_timed_out(certificate: Path) -> None:
    parts = [(0.0, HEAD + framed(event("a", [1]))), (30.0, framed(DONE) + END)]
    got = asyncio.run(over_tls(certificate, parts, 2, Limits(5, 0.3)))
    assert [r.error for r in got.records] == ["nothing received for 0.3 s"] * 2
    assert [r.chunk_tokens for r in got.records] == [(1,), (1,)]


def test_a_certificate_that_is_not_trusted_is_an_error_before_anything_is_sent(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(over_tls(certificate, [(0, GOOD)], 1, Limits(5, 5)))
