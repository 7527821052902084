"""SSL, and a password from where libpq looks for one.

Not every build of the server has SSL: something that has stands before it.
"""

from __future__ import annotations

import datetime
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from surefoot import StoreRefused, Surefoot, step, workflow
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.postgres import PrivatePostgres
from tests.postgres.test_opening import twice

SSL_REQUEST = (8).to_bytes(4) + (80877103).to_bytes(4)
LARGE = 3_000_000


class Terminator:
    """Speaks SSL with a client as a server does that has it, and passes everything on to one on loopback."""

    def __init__(self, folder: Path, port: int) -> None:
        self._port, self.certificate = port, folder / "root.crt"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, self._make_certificate(folder))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port, self.encrypted = int(self._server.getsockname()[1]), 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _make_certificate(self, folder: Path) -> Path:
        key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "db")])
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        made = made.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
        made = made.not_valid_after(now + datetime.timedelta(days=1))
        names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        signed = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        path = folder / "root.key"
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        return path

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        try:
            if client.recv(8, socket.MSG_WAITALL) != SSL_REQUEST:
                client.close()
                return
            client.sendall(b"S")
            plain, safe = socket.create_connection(("127.0.0.1", self._port)), self._context.wrap_socket(client, True)
            self.encrypted += 1
        except OSError:
            client.close()
            return
        with client, plain, safe, suppress(OSError):
            pass_on(safe, plain)

    def close(self) -> None:
        self._server.close()


def pass_on(safe: ssl.SSLSocket, plain: socket.socket) -> None:
    """Until one end closes. In one thread, since one SSL connection is not for two."""
    others: dict[socket.socket, socket.socket] = {safe: plain, plain: safe}
    while True:
        ready = [safe] if safe.pending() else select.select([safe, plain], [], [])[0]
        for source in ready:
            if not (data := source.recv(65_536)):
                return
            others[source].sendall(data)


@pytest.fixture
def terminator(tmp_path: Path, postgres_url: str) -> Iterator[Terminator]:
    port = urlsplit(postgres_url).port
    assert port is not None
    made = Terminator(tmp_path, port)
    yield made
    made.close()


@step
def large() -> str:
    return "x" * LARGE


@workflow
def writes_much() -> int:
    return len(large())


def test_a_run_goes_through_ssl_that_checks_the_servers_certificate(terminator: Terminator, postgres_url: str) -> None:
    plain = urlsplit(postgres_url)
    url = postgres_url.replace(f":{plain.port}/", f":{terminator.port}/")
    strict = f"{url}?sslmode=verify-full&sslrootcert={terminator.certificate}"
    with Surefoot(strict) as sf:
        assert sf.run(twice, id="small") == 2
        assert sf.run(writes_much, id="large") == LARGE
        assert isinstance(sf.store, PostgresStore)
        assert sf.store._writer.connect().pgconn.ssl_in_use
    assert terminator.encrypted >= 2
    with Surefoot(strict) as sf:
        assert sf.run(writes_much, id="large") == LARGE, "read again"


def test_a_certificate_that_nobody_vouches_for_is_refused(
    terminator: Terminator, postgres_url: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = Terminator(other, 1)
    stranger.close()
    url = postgres_url.replace(f":{urlsplit(postgres_url).port}/", f":{terminator.port}/")
    with pytest.raises(StoreRefused, match="certificate verify failed"):
        PostgresStore(f"{url}?sslmode=verify-full&sslrootcert={stranger.certificate}")


@pytest.mark.parametrize("place", ["PGPASSWORD", "PGPASSFILE"])
def test_a_password_is_taken_from_where_it_usually_is(
    place: str, postgres: PrivatePostgres, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = postgres_url.replace(f":{postgres.password}@", "@")
    assert postgres.password not in bare
    if place == "PGPASSWORD":
        monkeypatch.setenv(place, postgres.password)
    else:
        path = tmp_path / "pgpass"
        path.write_text(f"*:*:*:surefoot:{postgres.password}\n")
        path.chmod(0o600)
        monkeypatch.setenv(place, str(path))
    with Surefoot(bare) as sf:
        assert sf.run(twice, id="r") == 2
