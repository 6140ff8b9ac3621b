"""S3 over TLS: an authority of one's own by AWS_CA_BUNDLE; one that is not known is refused, in words, and in time.

Tests gpuflow/runtime/stores/http_connections.py.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.http_connections import Connections
from gpuflow.runtime.stores.open import open_store
from tests.runtime.certificates import authority
from tests.runtime.harness import free_port, run, shell
from tests.runtime.scripted_server import Peer, scripted
from tests.runtime.servers import BUCKET, answers, command, started

pytestmark = pytest.mark.s3
LARGE = (33 << 20) + 5
GET = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of two authorities: `ours` has signed for the servers here, `other` for none."""
    pytest.importorskip("s3fs", reason="make the environment of locks/runtime.txt")
    made = tmp_path_factory.mktemp("tls")
    for name in ("ours", "other"):
        authority(made, name)
    return made


@pytest.fixture(scope="module")
def secure(folder: Path) -> Iterator[str]:
    """The URL of a bucket on moto over TLS; the environment points S3 clients at it."""
    port = free_port()
    words = [*command("moto", port, folder), "--ssl-cert", f"{folder}/ours-server.pem"]
    words += ["--ssl-key", f"{folder}/ours-server.key"]
    with pytest.MonkeyPatch.context() as environment, started(words, folder) as server:
        environment.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{port}")
        environment.setenv("AWS_CA_BUNDLE", f"{folder}/ours.pem")
        environment.setenv("SSL_CERT_FILE", f"{folder}/ours.pem")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "test")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        answers(f"https://127.0.0.1:{port}/", server)
        environment.delenv("SSL_CERT_FILE")
        import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"


def test_objects_go_there_and_come_back_under_an_authority_of_ones_own(secure: str) -> None:
    store = open_store(f"{secure}/tls")
    assert isinstance(store, Remote)
    direct = store._direct()
    assert direct is not None and direct.secure
    for key, size in (("empty", 0), ("ü b", 7), ("large", LARGE)):
        data = os.urandom(size)
        store.put(key, [data[at : at + (1 << 20)] for at in range(0, size, 1 << 20)], size)
        assert b"".join(store.chunks(key)) == data
    assert [key for key, _ in store.names("")] == ["empty", "large", "ü b"]
    assert direct._in_vain == 0


@pytest.mark.parametrize("bundle", ["other.pem", None])
def test_an_authority_that_is_not_known_is_refused_in_words_and_in_time(
    secure: str, folder: Path, bundle: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    if bundle:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(folder / bundle))
    # Nobody knows whether the last try or the limit ends it: both name the certificate.
    outputs = ("--artifacts", f"{secure}/never", "--run-id", "r", "--output", "m:file", "--outputs-dir", tmp_path / "o")
    for words in (("--input", f"{tmp_path}/in={secure}/tls/"), outputs):
        refused = run("--storage-timeout", "20s", *words, *shell("echo ran"))
        assert (refused.returncode, refused.stdout) == (78, ""), refused.stderr
        last = refused.stderr.strip().splitlines()[-1]
        assert "certificate verify failed" in last
        assert "name its file in AWS_CA_BUNDLE" in last
        assert "Traceback" not in refused.stderr


def secured(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ours-server.pem", folder / "ours-server.key")
    return context


@pytest.mark.parametrize("politely", [True, False])
def test_a_secure_connection_that_was_closed_between_two_requests_is_replaced(folder: Path, politely: bool) -> None:
    closed = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(OK)
        if peer.number > 1:
            peer.gone()
        elif politely:
            assert isinstance(peer.socket, ssl.SSLSocket)
            peer.socket.settimeout(0.2)  # the client's half of the farewell comes when it looks
            with contextlib.suppress(OSError):
                peer.socket.unwrap()
        peer.socket.close()
        closed.set()

    context = ssl.create_default_context(cafile=str(folder / "ours.pem"))
    with scripted(handle, secured(folder)) as server:
        kept = Connections("127.0.0.1", server.port, context, 20.0, 20.0)
        assert kept.ask(GET).read(10) == b"ok"
        assert closed.wait(120)
        assert kept.ask(GET, [bytes(3_000_000)]).read(10) == b"ok"
        assert server.connections == 2


def test_a_server_that_speaks_no_tls_is_an_error(folder: Path) -> None:
    def handle(peer: Peer) -> None:
        peer.socket.recv(1000)
        peer.send(OK)

    context = ssl.create_default_context(cafile=str(folder / "ours.pem"))
    with scripted(handle) as server, pytest.raises(ssl.SSLError):
        Connections("127.0.0.1", server.port, context, 20.0, 20.0).ask(GET)
