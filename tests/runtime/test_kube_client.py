"""Requests to an API server that starts: what it refuses then is no answer yet."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.supervise import kube_client
from gpuflow.runtime.supervise.kube_client import ApiRefusal, ApiServer, ApiUnreachable
from gpuflow.runtime.supervise.object_state import path_of

PODS = "/api/v1/namespaces/ns/pods"
NO_RIGHT = 'pods is forbidden: User "system:serviceaccount:ns:launcher" cannot list resource "pods" in API group ""'
NO_QUOTA = 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9'


class Script:
    """Answers in order, each a status and its words; the last one stays."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str]] = [(200, "")]

    def next(self) -> tuple[int, str]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def api(tmp_path: Path, script: Script) -> Iterator[ApiServer]:
    """A server of one's own with a certificate, and the account of a pod that trusts it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here, which makes the certificate")
    certificate, key = tmp_path / "ca.crt", tmp_path / "key"
    words = ["-nodes", "-newkey", "rsa:2048", "-days", "1", "-subj", "/CN=test"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *words], check=True, capture_output=True)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, message = script.next()
            body = json.dumps({"message": message, "items": []}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_DELETE = do_GET

        def log_message(self, format: str, *words: object) -> None:
            """The test says what it saw."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("ns")
    host = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
    yield ApiServer({kube_client.ACCOUNT_VARIABLE: str(tmp_path), **host})
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("status", "words"), [(403, NO_RIGHT), (401, "Unauthorized")])
def test_a_right_that_was_there_is_asked_for_again(
    api: ApiServer,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    words: str,
) -> None:
    monkeypatch.setattr(kube_client, "POLL", 0.01)
    api.get(PODS)
    script.answers = [(status, words), (status, words), (200, "")]
    assert api.retry_while_unreachable(lambda: api.get(PODS, limit="1"))["items"] == []
    assert capsys.readouterr().out.count(words) == 1, "said once"


def test_a_right_that_was_never_there_is_refused_at_once(api: ApiServer, script: Script) -> None:
    api.get(f"{PODS}/a")
    api.get(f"{PODS}/a/log")
    script.answers = [(403, NO_RIGHT)]
    with pytest.raises(ApiRefusal, match="cannot list resource"):
        api.get(PODS)


def test_a_right_that_stays_away_is_gone(api: ApiServer, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    api.get(PODS)
    script.answers = [(403, NO_RIGHT)]
    with pytest.raises(ApiUnreachable):
        api.get(PODS)
    monkeypatch.setattr(kube_client, "DOUBT_SECONDS", 0.0)
    with pytest.raises(ApiRefusal):
        api.get(PODS)


def test_a_quota_is_an_answer(api: ApiServer, script: Script) -> None:
    api.create(PODS, {})
    script.answers = [(403, NO_QUOTA)]
    with pytest.raises(ApiRefusal, match="exceeded quota"):
        api.create(PODS, {})


def test_an_address_is_that_of_the_core_or_of_a_group_with_a_name_or_without() -> None:
    assert path_of("v1", "ns", "pods") == "/api/v1/namespaces/ns/pods"
    assert path_of("v1", "ns", "pods", "one") == "/api/v1/namespaces/ns/pods/one"
    assert path_of("batch/v1", "ns", "jobs") == "/apis/batch/v1/namespaces/ns/jobs"
    assert path_of("kueue.x-k8s.io/v1beta2", "ns", "workloads", "w") == (
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/w"
    )
