"""S3 around its driver: what is learned from it, and when the driver does it instead. On moto, with faults between."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from gpuflow.runtime.stores import s3_client
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.http_connections import BadAnswer
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.s3_client import DirectClient, learn_direct
from gpuflow.runtime.stores.store import StorageError
from tests.runtime.harness import free_port
from tests.runtime.scripted_server import Broken, between, scripted
from tests.runtime.servers import BUCKET, command, s3_server, started

pytestmark = pytest.mark.s3

Meddle = Callable[[Callable[[bytes], "bytes | None"]], None]
LARGE = (33 << 20) + 5
"""More than one block, and more than one part."""
SLOW_DOWN = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: 69\r\n\r\n"
    b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a running moto; the environment points S3 clients at it."""
    pytest.importorskip("s3fs", reason="make the environment of locks/runtime.txt")
    with s3_server("moto", tmp_path_factory.mktemp("moto")):
        yield int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])


def remote(prefix: str) -> Remote:
    store = open_store(f"s3://{BUCKET}/{prefix}")
    assert isinstance(store, Remote)
    return store


def direct_of(store: Remote) -> DirectClient:
    direct = store._direct()
    assert direct is not None
    return direct


def error(status: str, code: str, *headers: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>no</Message><Region>us-west-2</Region></Error>"
    lines = [f"HTTP/1.1 {status}", *headers, "Content-Type: application/xml", f"Content-Length: {len(body)}", "", body]
    return "\r\n".join(lines).encode()


def is_ours(head: bytes) -> bool:
    """Whether a request went around the driver: its headers are in lower case, and the driver's are not."""
    return b"\r\nauthorization: " in head


def goes_through(store: Remote, key: str, size: int = 7) -> None:
    """An object goes there and comes back."""
    data = os.urandom(size)
    store.put(key, [data[at : at + (1 << 20)] for at in range(0, size, 1 << 20)], size)
    assert b"".join(store.chunks(key)) == data


@pytest.fixture
def meddled(moto: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Meddle]:
    """Puts somebody between the clients and moto, who answers some requests; `heads` of it are what was asked."""
    with pytest.MonkeyPatch.context() as environment:
        servers = []

        def put_between(rule: Callable[[bytes], bytes | None]) -> None:
            server = scripted(between(moto, rule))
            environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.__enter__().port}")
            servers.append(server)

        yield put_between
        for server in servers:
            server.__exit__(None, None, None)


# -- what is learned


@pytest.mark.parametrize(
    ("bucket", "settings", "netloc", "before"),
    [
        ("bkt", {}, "bkt.s3.eu-central-1.amazonaws.com", "/"),
        ("b.k.t", {}, "s3.eu-central-1.amazonaws.com", "/b.k.t/"),
        ("bkt", {"s3": {"addressing_style": "path"}}, "s3.eu-central-1.amazonaws.com", "/bkt/"),
        ("bkt", {"s3": {"use_accelerate_endpoint": True}}, "bkt.s3-accelerate.amazonaws.com", "/"),
        ("bkt", {"s3": {"use_dualstack_endpoint": True}}, "bkt.s3.dualstack.eu-central-1.amazonaws.com", "/"),
    ],
)
@pytest.mark.parametrize("token", [None, "FwoG+/="])
def test_addresses_and_tokens_are_the_drivers(
    moto: int,
    bucket: str,
    settings: dict[str, Any],
    netloc: str,
    before: str,
    token: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    if token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    direct = learn_direct(driver(config_kwargs=settings), bucket)
    assert direct is not None
    assert (direct._put.scheme, direct._put.netloc, direct._put.before) == ("https", netloc, before)
    head = direct._head(direct._put, f"{before}k", "", {}, s3_client.EMPTY_SHA256).decode()
    assert (f"\r\nx-amz-security-token: {token}\r\n" in head) is (token is not None)
    assert f"\r\nhost: {netloc}\r\n" in head
    assert "eu-central-1/s3/aws4_request" in head


def driver(**settings: Any) -> Any:
    import fsspec  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    return fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **settings)


def test_an_object_goes_to_a_bucket_that_is_part_of_the_hosts_name(moto: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.us-east-1.amazonaws.com")
    store = Remote(f"s3://{BUCKET}/hosted", driver(config_kwargs={"s3": {"addressing_style": "virtual"}}))
    direct = direct_of(store)
    assert direct._put.netloc == f"{BUCKET}.s3.us-east-1.amazonaws.com"
    direct._connections.host, direct._connections.port = "127.0.0.1", moto
    key = "hosted/ü b+c&d=~%25?"
    direct.put(key, [b"x", b"yz"], None)
    answer, size, _ = direct.get(key, 0, 100)
    assert (answer.read(10), size) == (b"xyz", 3)
    assert list(direct.names("hosted/")) == [(key, 3)]


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"anon": True}, {}),
        ({"config_kwargs": {"signature_version": "s3"}}, {}),
        ({"s3_additional_kwargs": {"Metadata": {"a": "two  spaces"}}}, {}),
        ({}, {"AWS_SESSION_TOKEN": "ends with a line break\n"}),
        ({}, {"HTTP_PROXY": "http://127.0.0.1:9"}),
        ({"client_kwargs": {"verify": False, "endpoint_url": "https://127.0.0.1:9"}}, {}),
        ({"client_kwargs": {"endpoint_url": "https://127.0.0.1:9"}}, {"HTTPS_PROXY": "http://127.0.0.1:9"}),
        ({"config_kwargs": {"client_cert": "/nowhere.pem"}}, {}),
        ({"config_kwargs": {"connect_timeout": None}}, {}),
    ],
)
def test_it_steps_aside_where_it_would_not_do_as_the_driver_does(
    moto: int, settings: dict[str, Any], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert learn_direct(driver(**settings), BUCKET) is None


def test_encryption_and_who_pays_are_asked_for_as_the_driver_does(moto: int) -> None:
    asked = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:aws:kms:us-east-1:123456789012:key/k"}
    filesystem = driver(s3_additional_kwargs=asked, requester_pays=True)
    store = Remote(f"s3://{BUCKET}/encrypted", filesystem)
    direct = direct_of(store)
    assert all(kind.headers["x-amz-request-payer"] == "requester" for kind in (direct._put, direct._part, direct._get))
    for key, size in (("small", 7), ("large", LARGE)):
        goes_through(store, key, size)
        told = filesystem.call_s3("head_object", Bucket=BUCKET, Key=f"encrypted/{key}")
        assert {name: told[name] for name in asked} == asked
    assert direct._in_vain == 0


def test_a_customers_own_key_goes_with_every_request(moto: int) -> None:
    settings = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}
    filesystem = driver(s3_additional_kwargs=settings, client_kwargs={"endpoint_url": "https://127.0.0.1:9"})
    direct = learn_direct(filesystem, BUCKET)
    assert direct is not None
    names = ("x-amz-server-side-encryption-customer-key", "x-amz-server-side-encryption-customer-key-md5")
    assert all(name in kind.headers for name in names for kind in (direct._put, direct._part, direct._get))


def test_what_a_bucket_encrypts_by_default_needs_no_word(moto: int) -> None:
    store = remote("default")
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "k"}}
    store.fs.call_s3("put_bucket_encryption", Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [rule]})
    try:
        for key, size in (("small", 7), ("large", LARGE)):
            goes_through(store, key, size)
            told = store.fs.call_s3("head_object", Bucket=BUCKET, Key=f"default/{key}")
            assert told["ServerSideEncryption"] == "aws:kms"
    finally:
        store.fs.call_s3("delete_bucket_encryption", Bucket=BUCKET)
    assert direct_of(store)._in_vain == 0


# -- proxies


@pytest.mark.parametrize(("without", "through"), [("", True), ("localhost", True), ("127.0.0.1", False), ("*", False)])
def test_where_there_is_a_proxy_the_driver_goes_through_it(
    moto: int, without: str, through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def watch(head: bytes) -> None:
        seen.append(head.partition(b" ")[2])

    with scripted(between(moto, watch)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", without)
        store = remote("proxy")
        goes_through(store, "k")
    assert (store._direct() is None) is through
    assert bool(seen) is through
    assert all(line.startswith(b"http://127.0.0.1:") for line in seen)


# -- a server that signatures matter to


def test_a_server_that_checks_signatures_takes_ours_for_odd_names(
    tmp_path: Path, moto: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = {"credentials": [{"accessKey": "us", "secretKey": "s3cret/+="}], "name": "us"}
    rights = ["Admin", "Read", "Write", "List", "Tagging"]
    (tmp_path / "who.json").write_text(json.dumps({"identities": [{**identity, "actions": rights}]}))
    port = free_port()
    words = [*command("seaweedfs", port, tmp_path), f"-s3.config={tmp_path / 'who.json'}"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "us")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret/+=")
    with started(words, tmp_path):
        _until_there_is_a_bucket()
        store = remote("signed")
        names = ["plain", "ü ñ", "a b+c&d=~%25?", "*'()!:@,;$", "x/[y]/{z}", "tab\there", "-", "🙂"]
        for name in names:
            direct_of(store).put(f"signed/{name}", [name.encode()], None)
            answer, _, _ = direct_of(store).get(f"signed/{name}", 0, 100)
            assert answer.read(100) == name.encode()
        assert sorted(key for key, _ in direct_of(store).names("signed/")) == sorted(f"signed/{name}" for name in names)
        goes_through(store, "large ü", LARGE)
        assert direct_of(store)._in_vain == 0
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(StorageError, match=r"PermissionError|SignatureDoesNotMatch"):
            remote("signed").put("never", [b"x"], 1)


def _until_there_is_a_bucket() -> None:
    import time

    until = time.monotonic() + 90
    while True:
        try:
            driver().call_s3("create_bucket", Bucket=BUCKET)
            return
        except Exception:
            assert time.monotonic() < until, "the bucket cannot be made"
            time.sleep(0.5)


# -- faults


def test_busy_servers_are_left_to_the_driver_and_tried_again_after_a_pause(
    meddled: Meddle, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, ours = [True], [0]

    def rule(head: bytes) -> bytes | None:
        ours[0] += is_ours(head)
        return SLOW_DOWN if busy[0] and is_ours(head) else None

    meddled(rule)
    monkeypatch.setattr(s3_client, "_PAUSE", 3600.0)
    store = remote("busy")
    for number in range(8):
        goes_through(store, f"{number}")
    assert ours[0] == s3_client._IN_VAIN
    busy[0] = False
    goes_through(store, "paused")
    assert ours[0] == s3_client._IN_VAIN
    monkeypatch.setattr(s3_client, "_PAUSE", 0.0)
    goes_through(store, "again")
    assert ours[0] == s3_client._IN_VAIN + 2
    assert direct_of(store)._in_vain == 0


def test_a_server_that_is_busy_for_a_moment_loses_nothing(
    meddled: Meddle,
) -> None:
    count = [0]

    def rule(head: bytes) -> bytes | None:
        count[0] += 1
        return SLOW_DOWN if count[0] % 3 == 0 else None

    meddled(rule)
    store = remote("moment")
    for number in range(6):
        goes_through(store, f"{number}")
    goes_through(store, "large", LARGE)
    assert len(store.names("")) == 7


@pytest.mark.parametrize("status", ["301 Moved Permanently", "307 Temporary Redirect", "400 Bad Request"])
def test_a_bucket_in_another_region_is_found_by_the_driver(status: str, meddled: Meddle) -> None:
    codes = {"301": "PermanentRedirect", "307": "TemporaryRedirect", "400": "AuthorizationHeaderMalformed"}
    away = [0]

    def rule(head: bytes) -> bytes | None:
        if b"/us-west-2/s3/aws4_request" in head:
            return None
        away[0] += 1
        return error(status, codes[status[:3]], "x-amz-bucket-region: us-west-2")

    meddled(rule)
    store = remote(f"region-{status[:3]}")
    for number in range(12):
        goes_through(store, f"{number}")
    assert away[0] > 0
    assert len(store.names("")) == 12


def test_credentials_that_end_between_two_requests_are_renewed(
    meddled: Meddle, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, ended, used = [0], {"token-0"}, []

    def issue(head: bytes) -> bytes:
        given[0] += 1
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5)  # so that each request asks anew
        words = {"AccessKeyId": "a", "SecretAccessKey": "b", "Token": f"token-{given[0]}"}
        body = json.dumps({**words, "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")})
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    def rule(head: bytes) -> bytes | None:
        token = next(line for line in head.decode().split("\r\n") if line.lower().startswith("x-amz-security-token"))
        if token.partition(": ")[2] in ended:
            return error("400 Bad Request", "ExpiredToken")
        if is_ours(head):
            used.append(token.partition(": ")[2])
        return None

    with scripted(between(0, issue)) as issuer:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{issuer.port}/credentials")
        meddled(rule)
        store = remote("renewed")
        goes_through(store, "first")
        first = set(used)
        assert len(first) == 1
        ended |= {f"token-{number}" for number in range(given[0] + 1)}
        goes_through(store, "second")
        used.clear()
        goes_through(store, "third")
    assert used and not first & set(used)


def test_an_object_that_is_replaced_while_it_is_read_is_not_mixed(moto: int) -> None:
    store = remote("replaced")
    goes_through(store, "k", LARGE)
    pieces = store.chunks("k")
    next(pieces)
    store.put("k", [bytes(1 << 20)] * 33 + [bytes(5)], LARGE)
    with pytest.raises(StorageError, match="was replaced while it was read"):
        list(pieces)


@pytest.mark.parametrize("cut", ["body", "head", "before"])
def test_the_driver_goes_on_where_a_connection_broke(cut: str, meddled: Meddle) -> None:
    broken = threading.Event()

    def rule(head: bytes) -> bytes | None:
        if not (is_ours(head) and head.startswith(b"GET") and b"range: bytes=16777216-" in head):
            return None
        broken.set()
        if cut == "before":
            raise Broken(b"")
        if cut == "head":
            raise Broken(b"HTTP/1.1 206 Partial")
        size = (24 << 20) - (16 << 20)
        words = f"Content-Range: bytes 16777216-{(24 << 20) - 1}/{LARGE}\r\nContent-Length: {size}"
        raise Broken(f"HTTP/1.1 206 Partial Content\r\n{words}\r\n\r\n".encode() + bytes(1000))

    meddled(rule)
    goes_through(remote(f"broke-{cut}"), "k", LARGE)
    assert broken.is_set()


# -- answers that are none


def listing(*keys: tuple[str, str], more: str = "") -> bytes:
    items = "".join(f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size></Contents>" for key, size in keys)
    return f"<ListBucketResult>{items}<EncodingType>url</EncodingType>{more}</ListBucketResult>".encode()


def test_a_page_of_a_listing_is_read() -> None:
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    assert s3_client._page(listing(("p/a+b%2Bc", "3"), more=more), "p/") == ([("p/a b+c", 3)], "t")


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html></html>",
        b"<ListBucketResult>",
        listing(("", "1")),
        listing(("p/a", "")),
        listing(("p/a", "-1")),
        listing(("p/a", "\xb2")),
        listing(("p/a", "9" * 5000)),
        listing(("q/a", "1")),
        listing(("p/%ff", "1")),
        listing(("p/a", "1"), more="<IsTruncated>true</IsTruncated>"),
    ],
)
def test_what_is_no_page_is_refused(page: bytes) -> None:
    with pytest.raises(BadAnswer):
        s3_client._page(page, "p/")


def test_a_listing_that_does_not_go_on_is_left_to_the_driver(
    meddled: Meddle,
) -> None:
    page = listing(
        ("stuck/a", "1"), more="<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    )
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\n\r\n".encode() + page
    asked = [0]

    def rule(head: bytes) -> bytes | None:
        if is_ours(head) and b"list-type=2" in head:
            asked[0] += 1
            return answer
        return None

    meddled(rule)
    store = remote("stuck")
    goes_through(store, "real")
    assert store.names("") == [("real", 7)]
    assert asked[0] == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/\xb2\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1-3/7\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/*\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-2/7\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 3\r\n\r\nbad",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_a_range_that_is_another_one_is_left_to_the_driver(answer: bytes, meddled: Meddle) -> None:
    meddled(lambda head: answer if is_ours(head) and head.startswith(b"GET") and b"list-type" not in head else None)
    goes_through(remote("range"), "k")


def test_a_part_without_a_tag_is_left_to_the_driver(
    meddled: Meddle,
) -> None:
    untagged = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    meddled(lambda head: untagged if is_ours(head) and b"partNumber=" in head else None)
    goes_through(remote("untagged"), "k", LARGE)


def test_without_a_driver_of_s3_there_is_no_way_around() -> None:
    assert learn_direct(object(), BUCKET) is None
