"""The real Kubernetes client against a server that fails: each fault is one sentence, with every version of the client.

`make test-oldest` and `make test-newest` run this with the oldest and the newest client that pyproject.toml allows.

Tests gpuflow/cluster/api_server.py.
"""

from __future__ import annotations

import inspect
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuflow.cli.main import main
from gpuflow.cluster import api_server
from gpuflow.cluster.api_server import Reader
from gpuflow.cluster.live import read_live
from gpuflow.cluster.model import Cluster
from gpuflow.core.errors import EnvironmentFailure

from .faulty_server import TOKEN, Said, Server, certificate, healthy, kubeconfig, listed, refused, serving

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxies stay out of this."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def read(folder: Path, address: str, timeout: float = 5, **cluster: object) -> Cluster:
    return read_live("ns", kubeconfig=kubeconfig(folder, address, **cluster), timeout=timeout)


def sentence(folder: Path, address: str, timeout: float = 5, **cluster: object) -> str:
    """What a user is told when nothing can be read: one finding of one line."""
    with pytest.raises(EnvironmentFailure) as failure:
        read(folder, address, timeout, **cluster)
    (finding,) = failure.value.findings
    assert "\n" not in finding.message
    assert finding.hint
    assert "object at 0x" not in finding.message
    return f"{finding.code} {finding.message}"


def test_lists_are_read_page_by_page_with_the_token_of_the_kubeconfig(server: Server, tmp_path: Path) -> None:
    cluster = read(tmp_path, server.address)
    assert [item.name for item in cluster.of("Node")] == ["first", "second"]
    assert cluster.unread == {"Pod": "403 Forbidden"}
    assert {headers["authorization"] for _, headers in server.seen} == {"Bearer mine"}
    queries = [parse_qs(urlsplit(path).query) for path in server.paths() if "/nodes" in path]
    assert [(query["limit"], query.get("continue")) for query in queries] == [(["500"], None), (["500"], [TOKEN])]
    (pods,) = [parse_qs(urlsplit(path).query) for path in server.paths() if "/pods" in path]
    assert pods["fieldSelector"] == ["status.phase!=Succeeded,status.phase!=Failed"]


def test_the_command_line_writes_a_snapshot_and_names_the_closed_kind(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = kubeconfig(tmp_path, server.address)
    folder = tmp_path / "cluster"
    assert main(["snapshot", "-o", str(folder), "--namespace", "ns", "--kubeconfig", config]) == 0
    assert "GF413 Pod cannot be listed: 403 Forbidden" in capsys.readouterr().err
    assert "name: second" in (folder / "node.yaml").read_text()


def test_a_server_that_forgets_its_place_is_asked_for_the_whole_list(server: Server, tmp_path: Path) -> None:
    def forgetful(path: str, query: dict[str, list[str]]) -> Said:
        if path == "/api/v1/nodes" and "continue" in query:
            return refused(410, "Expired")
        if path == "/api/v1/nodes" and "limit" not in query:
            return listed("first", "second", "third")
        return healthy(path, query)

    server.answer = forgetful
    assert [item.name for item in read(tmp_path, server.address).of("Node")] == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "GF411 the cluster does not accept the credentials of the kubeconfig: 401 Unauthorized"),
        (403, "GF413 limitranges cannot be listed: 403 Forbidden"),
        (404, "GF412 limitranges cannot be listed: 404 Not Found"),
        (429, "GF412 limitranges cannot be listed: 429 Too Many Requests"),
        (503, "GF412 limitranges cannot be listed: 503 Service Unavailable"),
        (599, "GF412 limitranges cannot be listed: 599"),
    ],
)
def test_without_a_list_that_is_needed_the_status_is_said(
    server: Server, tmp_path: Path, status: int, told: str
) -> None:
    server.answer = lambda path, query: refused(status) if "limitranges" in path else healthy(path, query)
    assert sentence(tmp_path, server.address) == told


PAGE = b"<!doctype html><title>Sign in</title>"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Said(200, PAGE, "text/html; charset=utf-8"), "it answers with a web page (200 OK)"),
        (Said(404, PAGE, "text/html"), "it answers with a web page (404 Not Found)"),
        (Said(403, PAGE, "text/html"), "it answers with a web page (403 Forbidden)"),
        (Said(200, b"hello", "text/plain"), "it answers something other than an object (text/plain)"),
        (Said(200, b"[1]"), "it answers something other than an object (application/json)"),
        (
            Said(302, b"", headers=(("Location", "https://me:pw@login.example.com/x?token=1"),)),
            "it sends every question on to https://login.example.com (302 Found)",
        ),
    ],
)
def test_what_is_no_api_server_is_never_an_empty_cluster(server: Server, tmp_path: Path, said: Said, told: str) -> None:
    server.answer = lambda path, query: said
    assert sentence(tmp_path, server.address) == f"GF412 {server.address} is not a Kubernetes API server: {told}"
    assert len(server.seen) == 1, "no redirect is followed, with the token in its hands"


@pytest.mark.parametrize("document", [{}, {"status": "ok"}, {"items": {}}, {"items": ["a"]}])
def test_an_object_that_is_no_list_is_never_a_list_of_nothing(
    server: Server, tmp_path: Path, document: dict[str, object]
) -> None:
    server.answer = lambda path, query: Said(200, json.dumps(document).encode())
    assert "does not answer as a Kubernetes API server: no list at /api/v1/" in sentence(tmp_path, server.address)


def test_a_list_that_go_writes_as_null_is_a_list_of_nothing(server: Server, tmp_path: Path) -> None:
    server.answer = lambda path, query: Said(200, b'{"kind": "List", "metadata": {}, "items": null}')
    assert read(tmp_path, server.address).bodies("Node") == []


def test_half_an_answer_is_named(server: Server, tmp_path: Path) -> None:
    server.answer = lambda path, query: listed("a", "b")._replace(half=True)
    told = f"GF412 the cluster does not answer: {server.address} broke off in the middle of an answer"
    assert sentence(tmp_path, server.address) == told
    server.answer = lambda path, query: Said(200, b'{"items": [')
    assert sentence(tmp_path, server.address) == told


def test_a_silent_server_is_named_with_the_seconds(server: Server, tmp_path: Path) -> None:
    server.silent_for = 1.5
    told = f"GF412 the cluster does not answer: {server.address} was silent for 0.3 s"
    assert sentence(tmp_path, server.address, timeout=0.3) == told


def test_a_host_that_is_not_there_is_named(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        told = f"GF412 the cluster does not answer: no connection to {address}: Connection refused"
        assert sentence(tmp_path, address) == told
    assert "no connection to http://no-such-host.invalid" in sentence(tmp_path, "http://no-such-host.invalid")


def test_tls_is_trusted_only_as_the_kubeconfig_says(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    with serving(certificate=file) as server:
        trouble = f"GF412 no trusted connection to {server.address}: "
        assert sentence(tmp_path, server.address).startswith(f"{trouble}self")
        names = [
            item.name for item in read(tmp_path, server.address, **{"certificate-authority": str(file)}).of("Node")
        ]
        assert names == ["first", "second"]
        assert read(tmp_path, server.address, **{"insecure-skip-tls-verify": True}).of("Node")
    (tmp_path / "other").mkdir()
    other = certificate(tmp_path / "other", "elsewhere.example.com")
    with serving(certificate=other) as server:
        own = {"certificate-authority": str(other)}
        assert "match" in sentence(tmp_path, server.address, **own)
        named = {**own, "tls-server-name": "elsewhere.example.com"}
        assert read(tmp_path, server.address, **named).of("Node")


def test_a_server_without_tls_is_named(server: Server, tmp_path: Path) -> None:
    address = server.address.replace("http:", "https:")
    assert sentence(tmp_path, address).startswith(f"GF412 no trusted connection to {address}: ")


def test_the_proxy_of_the_kubeconfig_and_of_the_environment_is_used(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "http://cluster.invalid:6443"
    assert read(tmp_path, away, **{"proxy-url": server.address}).of("Node")
    assert server.paths()[0].startswith(f"{away}/api")
    server.seen.clear()
    monkeypatch.setenv("HTTP_PROXY", server.address.replace("//", "//me:p%40w@"))
    assert read(tmp_path, away).of("Node")
    assert server.seen[0][1]["proxy-authorization"] == "Basic bWU6cEB3"


@pytest.mark.parametrize("exempt", ["127.0.0.1", "127.0.0.0/8", "localhost,127.0.0.1", "*"])
def test_a_host_that_no_proxy_names_is_asked_directly(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exempt: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert read(tmp_path, server.address).of("Node")


def test_a_proxy_that_refuses_is_named_without_its_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_password = server.address.replace("//", "//me:secret@")
    monkeypatch.setenv("HTTPS_PROXY", with_password)
    told = sentence(tmp_path, "https://cluster.invalid:6443")
    assert told.startswith(f"GF412 the proxy {server.address} does not let the question through: ")
    assert "407" in told and "secret" not in told
    monkeypatch.setenv("HTTP_PROXY", with_password)
    server.answer = lambda path, query: Said(407, b"")
    assert sentence(tmp_path, "http://cluster.invalid") == (
        "GF412 the proxy wants to know who asks: 407 Proxy Authentication Required"
    )
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert "the proxy http://127.0.0.1:1" in sentence(tmp_path, "https://cluster.invalid:6443")


def test_a_proxy_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    told = sentence(tmp_path, "https://cluster.invalid", **{"proxy-url": "gopher://me:secret@127.0.0.1:1"})
    assert told.startswith("GF411 the proxy gopher://127.0.0.1:1 cannot be used: ") and "secret" not in told


@pytest.mark.parametrize("text", ["clusters: 5\n", "[1, 2]\n", "5\n", "", "a: [\n", "\x00", "contexts: [{name: 5}]\n"])
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text(text)
    with pytest.raises(EnvironmentFailure, match="GF411"):
        Reader(None, str(broken))


def test_a_kubeconfig_or_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="GF411"):
        Reader(None, str(tmp_path / "none"))
    with pytest.raises(EnvironmentFailure, match="GF411"):
        Reader("nowhere", kubeconfig(tmp_path, "http://127.0.0.1:1"))


def test_a_token_that_no_header_can_carry_is_not_shown(server: Server, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, server.address, token="s3cr3t\nX-Remote-User: admin")
    with pytest.raises(EnvironmentFailure, match="characters that no request can carry") as failure:
        read_live("ns", kubeconfig=file)
    assert "s3cr3t" not in str(failure.value)
    assert server.seen == []


def test_our_own_mistakes_are_not_the_network_s(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6: an argument that the client did not know was told as "the cluster does not answer"."""
    file = kubeconfig(tmp_path, server.address)
    for mistake in (TypeError, AttributeError, KeyError, AssertionError):
        reader = Reader(None, file)

        def fail(*args: object, kind: type[Exception] = mistake, **words: object) -> None:
            raise kind("got an unexpected keyword argument 'query_params'")

        monkeypatch.setattr(reader._pool, "request", fail)
        with pytest.raises(mistake):
            read_live("ns", reader=reader)

    from kubernetes import config

    monkeypatch.setattr(config, "load_kube_config", lambda other: None)
    with pytest.raises(TypeError):
        Reader(None, file)


def test_nothing_private_of_the_client_is_used() -> None:
    source = inspect.getsource(api_server)
    for private in ("call_api", "_preload_content", "_request_timeout", "client._", "config._"):
        assert private not in source.replace("`ApiClient.call_api`", "")


def test_objects_are_sent_and_the_words_of_a_refusal_are_kept(server: Server, tmp_path: Path) -> None:
    reader = Reader(None, kubeconfig(tmp_path, server.address, token=TOKEN), 5)
    assert reader.send("POST", "/api/v1/namespaces/ns/configmaps", {"kind": "ConfigMap"}).status == 200
    assert reader.send("PATCH", "/api/v1/namespaces/ns/configmaps/a", {"data": {}}).status == 200
    assert [headers["content-type"] for _, headers in server.seen] == [
        "application/json",
        "application/merge-patch+json",
    ]
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for _, headers in server.seen)
    body = json.dumps({"kind": "Status", "message": "configmaps is forbidden"}).encode()
    server.answer = lambda path, query: Said(403, body)
    refusal = reader.send("DELETE", "/api/v1/namespaces/ns/configmaps/a")
    assert (refusal.status, refusal.sentence) == (403, "configmaps is forbidden")


def test_a_log_comes_in_pieces_and_one_that_is_not_there_is_nothing(server: Server, tmp_path: Path) -> None:
    reader = Reader(None, kubeconfig(tmp_path, server.address), 5)
    server.answer = lambda path, query: Said(200, "größer\n".encode() * 20_000, "text/plain")
    pieces = list(reader.text("/api/v1/namespaces/ns/pods/a/log", {"container": "main"}))
    assert len(pieces) > 2 and "".join(pieces) == "größer\n" * 20_000
    server.answer = lambda path, query: refused(404)
    assert list(reader.text("/api/v1/namespaces/ns/pods/a/log", {})) == []
    server.answer = lambda path, query: Said(200, b"x" * 100, "text/plain", half=True)
    with pytest.raises(EnvironmentFailure, match="broke off"):
        list(reader.text("/api/v1/namespaces/ns/pods/a/log", {}))
