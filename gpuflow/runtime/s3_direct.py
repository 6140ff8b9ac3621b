"""S3 without a driver in the way, for the many and the large: plain requests, made as the driver would make them.

How a request looks (address, headers, encryption, credentials, certificates) is learned from the driver: it prepares
one of each kind, which is caught before it is sent. Our own signature of that request must be the driver's, else
nothing is sent this way. Only answers that say "done" are taken; for anything else the caller asks the driver, which
tries again, follows and words errors as it always did.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import threading
import time
import zlib

from gpuflow.runtime.http_connections import Answer, BadAnswer, Connections
from gpuflow.runtime.s3_signing import EMPTY, UNSIGNED, Signer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_RENEWED = 60.0
"""Seconds after which credentials are asked for again; who keeps them renews them long before they end."""
_IN_VAIN = 10
"""So many requests in a row that did not do it: the driver takes over for good."""
_OWN = frozenset(
    (
        *("authorization", "host", "connection", "expect", "range", "if-match"),
        *("content-length", "content-md5", "content-encoding", "transfer-encoding"),
        *("x-amz-date", "x-amz-content-sha256", "x-amz-security-token", "x-amz-decoded-content-length"),
        *("x-amz-trailer", "x-amz-checksum-crc32", "x-amz-sdk-checksum-algorithm"),
        *("amz-sdk-invocation-id", "amz-sdk-request"),
    )
)
"""Headers that belong to one request. All others are the same for all of a kind."""
_NOT_SIGNED = frozenset({"user-agent", "accept-encoding", "accept"})
_LISTED = 16 << 20
"""Most bytes of one page of a listing."""


class NotDone(Exception):
    """The server did not do it, or it is not known whether it did: ask the driver."""


class _Caught(Exception):
    """Raised in place of sending, with the request."""

    def __init__(self, request: Any) -> None:
        super().__init__("caught before it was sent")
        self.request = request


class Kind:
    """What all requests of one kind have in common."""

    def __init__(self, request: Any, marker: str, query: Sequence[str]) -> None:
        from urllib.parse import urlsplit

        url = urlsplit(request.url)
        headers = {name.lower(): _text(value).strip() for name, value in request.headers.items()}
        self.method = str(request.method)
        self.scheme, self.host, self.port = url.scheme, url.hostname or "", url.port
        self.netloc = headers.get("host") or url.netloc
        self.before, found, after = str(url.path).partition(marker)
        self.query = url.query
        fields = sorted(word.partition("=")[0] for word in url.query.split("&") if word)
        strange = bool(after) or not (found or "prefix" in query) or fields != sorted(query)
        if strange or url.scheme not in ("http", "https") or not self.host or "@" in url.netloc:
            raise NotDone(f"an address that is not known: {url.scheme}://{url.netloc}{url.path}")
        self.headers = {name: value for name, value in headers.items() if name not in _OWN}
        self.checked = "x-amz-checksum-crc32" in headers or headers.get("x-amz-trailer") == "x-amz-checksum-crc32"
        strange = any(name.startswith("x-amz-checksum-") and name not in _KNOWN_CHECKSUMS for name in headers)
        trailer = headers.get("x-amz-trailer", "x-amz-checksum-crc32")
        if strange or trailer != "x-amz-checksum-crc32" or "x-amz-s3session-token" in headers:
            raise NotDone("requests of a kind that is not known")
        self._sent = headers
        self._path = url.path

    def signed_alike(self, signer: Signer) -> bool:
        """Whether our signature of the request that was caught is the driver's."""
        given = self._sent.get("authorization", "")
        if not given.startswith("AWS4-HMAC-SHA256 "):
            return False
        words = dict(word.strip().partition("=")[::2] for word in given.partition(" ")[2].split(","))
        headers = {name: self._sent.get(name, "") for name in words.get("SignedHeaders", "").split(";")}
        headers["host"] = self.netloc
        return signer.authorization(self.method, self._path, _sorted(self.query), headers) == given

    def region(self) -> str:
        return self._sent.get("authorization", "").partition("Credential=")[2].partition(",")[0].split("/")[-3]


_KNOWN_CHECKSUMS = ("x-amz-checksum-crc32", "x-amz-checksum-mode")


class Direct:
    """One bucket. `put`, `part`, `get` and `page` raise NotDone where a driver must take over."""

    def __init__(self, driver: Any, bucket: str) -> None:
        self._driver, self.bucket = driver, bucket
        self._lock = threading.Lock()
        self._in_vain = 0
        marker = f"gpuflow-{os.urandom(8).hex()}"
        _wait(driver, driver.set_session)
        client = _wait(driver, driver.get_s3, bucket)
        common = {"Bucket": bucket, "Key": marker}
        caught = Catcher(driver, client, marker)
        part = {**common, "UploadId": "u", "PartNumber": 1, "Body": b"x"}
        self._put = caught.kind("put_object", "PutObject", [], **common, Body=b"x")
        self._part = caught.kind("upload_part", "UploadPart", ["partNumber", "uploadId"], **part)
        self._get = caught.kind("get_object", "GetObject", [], **common)
        listed = ["list-type", "prefix", "encoding-type"]
        self._list = caught.kind("list_objects_v2", "ListObjectsV2", listed, Bucket=bucket, Prefix=marker)
        self._credentials = client._request_signer._credentials
        self._signer, self._asked = self._sign_as(self._put.region()), time.monotonic()
        kinds = (self._put, self._part, self._get, self._list)
        if not all(kind.signed_alike(self._signer) for kind in kinds):
            raise NotDone("the driver signs in another way")
        if len({(kind.scheme, kind.host, kind.port) for kind in kinds}) != 1:
            raise NotDone("not one server for all")
        self.secure = self._put.scheme == "https"
        self._connections = _connections(client, self._put)

    def put(self, key: str, body: Sequence[bytes], sha256: str | None) -> None:
        """Write an object of a few pieces. `sha256` is of all of them, where it is known."""
        self._upload(self._put, self._path(self._put, key), "", body, sha256).close()

    def part(self, key: str, upload: str, number: int, body: Sequence[bytes]) -> dict[str, Any]:
        """Send one part of a large object; what the request that completes it says of the part."""
        query = f"partNumber={number}&uploadId={_quoted(upload, '')}"
        answer = self._upload(self._part, self._path(self._part, key), query, body, None)
        answer.close()
        tag = answer.headers.get("etag")
        if not tag:
            raise NotDone("a part without a tag")
        found = {"PartNumber": number, "ETag": tag}
        checksum = answer.headers.get("x-amz-checksum-crc32")
        return {**found, "ChecksumCRC32": checksum} if checksum else found

    def get(self, key: str, begin: int, end: int, tag: str | None = None) -> tuple[Answer, int, str | None]:
        """Bytes from `begin` up to `end` of an object, how long all of it is, and its tag.

        With a tag: only of the object that has it still.
        """
        more = {"range": f"bytes={begin}-{end - 1}"}
        if tag:
            more["if-match"] = tag
        answer = self._ask(self._get, self._path(self._get, key), "", more, (), EMPTY, (200, 206))
        if answer.status == 200 and begin == 0 and answer.length is not None:
            return answer, answer.length, answer.headers.get("etag")
        words = answer.headers.get("content-range", "")
        first, _, total = words.partition("/")
        if answer.status != 206 or not total.isdigit() or not first.startswith(f"bytes {begin}-"):
            answer.close()
            raise NotDone("not the range that was asked for")
        if answer.length != min(end, int(total)) - begin:
            answer.close()
            raise NotDone("not as long as was asked for")
        return answer, int(total), answer.headers.get("etag")

    def names(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Every key that begins with the prefix, and its size."""
        token = ""
        while True:
            fields = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000"}
            if token:
                fields["continuation-token"] = token
            query = "&".join(f"{name}={_quoted(value, '')}" for name, value in sorted(fields.items()))
            answer = self._ask(self._list, self._list.before, query, {}, (), EMPTY, (200,))
            try:
                found, token = _page(answer.read(_LISTED))
            except OSError as refusal:
                raise NotDone(str(refusal)) from refusal
            yield from found
            if not token:
                return

    def _path(self, kind: Kind, key: str) -> str:
        return f"{kind.before}{_quoted(key, '/')}"

    def _upload(self, kind: Kind, path: str, query: str, body: Sequence[bytes], sha256: str | None) -> Answer:
        more = {"content-length": str(sum(map(len, body)))}
        if kind.checked:
            check = 0
            for piece in body:
                check = zlib.crc32(piece, check)
            more["x-amz-checksum-crc32"] = base64.b64encode(check.to_bytes(4, "big")).decode()
        if self.secure and kind.checked:
            sha256 = UNSIGNED  # as drivers do: what is encrypted on the way and has a checksum need not be hashed
        elif sha256 is None:
            hashed = hashlib.sha256()
            for piece in body:
                hashed.update(piece)
            sha256 = hashed.hexdigest()
        answer = self._ask(kind, path, query, more, body, sha256, (200,))
        # What it says of it beyond the head is a few words at most.
        try:
            answer.read(64 << 10)
        except OSError as refusal:
            raise NotDone(str(refusal)) from refusal
        return answer

    def _ask(
        self,
        kind: Kind,
        path: str,
        query: str,
        more: Mapping[str, str],
        body: Sequence[bytes],
        payload: str,
        done: tuple[int, ...],
    ) -> Answer:
        if self._in_vain >= _IN_VAIN:
            raise NotDone("it did not work before")
        head = self._head(kind, path, query, more, payload)
        try:
            answer = self._connections.ask(head, body)
        except OSError as refusal:
            self._in_vain += 1
            raise NotDone(f"{type(refusal).__name__}: {refusal}") from refusal
        if answer.status in done:
            self._in_vain = 0
            return answer
        status = answer.status
        # Its connection may be used again when the server has no more to say.
        with contextlib.suppress(OSError):
            answer.read(64 << 10)
        if status not in (404, 412, 416):
            self._in_vain += 1
        raise NotDone(f"HTTP status {status}")

    def _head(self, kind: Kind, path: str, query: str, more: Mapping[str, str], payload: str) -> bytes:
        signer = self._current()
        headers = {**kind.headers, **more, "host": kind.netloc}
        headers["x-amz-date"], headers["x-amz-content-sha256"] = signer.now(), payload
        if signer.token:
            headers["x-amz-security-token"] = signer.token
        signed = {name: value for name, value in headers.items() if name not in _NOT_SIGNED}
        headers["authorization"] = signer.authorization(kind.method, path, query, signed)
        where = f"{path}?{query}" if query else path
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{kind.method} {where} HTTP/1.1\r\n{lines}\r\n".encode()

    def _current(self) -> Signer:
        if time.monotonic() - self._asked > _RENEWED:
            with self._lock:
                if time.monotonic() - self._asked > _RENEWED:
                    self._signer, self._asked = self._sign_as(self._signer.region), time.monotonic()
        return self._signer

    def _sign_as(self, region: str) -> Signer:
        try:
            found = _wait(self._driver, self._credentials.get_frozen_credentials)
        except Exception as refusal:
            raise NotDone(f"no credentials: {refusal}") from refusal
        return Signer(found.access_key, found.secret_key, found.token, region)


class Catcher:
    """Lets the driver prepare requests and catches them before they are sent; others have no such key."""

    def __init__(self, driver: Any, client: Any, marker: str) -> None:
        self._driver, self._client, self._marker = driver, client, marker

    def kind(self, method: str, operation: str, query: Sequence[str], **named: Any) -> Kind:
        """One kind of request, which has these fields in its query."""

        def catch(request: Any, **_: Any) -> None:
            if self._marker in request.url:
                raise _Caught(request)

        event, events = f"before-send.s3.{operation}", self._client.meta.events
        events.register_first(event, catch)
        try:
            self._driver.call_s3(method, **named)
        except Exception as caught:
            request = _caught(caught)
            if request is None:
                raise
            return Kind(request, self._marker, query)
        finally:
            events.unregister(event, catch)
        raise NotDone("a request was not caught")


def learned(driver: Any, bucket: str) -> Direct | None:
    """A way around the driver to a bucket, or None where it is not known how."""
    if not hasattr(driver, "call_s3") or not hasattr(driver, "set_session"):
        return None
    # Whatever is different in this version of the driver, the driver itself still works.
    with contextlib.suppress(Exception):
        return Direct(driver, bucket)
    return None


def _wait(driver: Any, action: Any, *words: Any) -> Any:
    from fsspec.asyn import sync  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    return sync(driver.loop, action, *words)


def _caught(error: BaseException | None) -> Any:
    while error is not None:
        if isinstance(error, _Caught):
            return error.request
        error = error.__cause__ or error.__context__
    return None


def _connections(client: Any, kind: Kind) -> Connections:
    """As the driver connects: its certificates and times; not where it goes through a proxy or shows a certificate."""
    session = client._endpoint.http_session
    address = f"{kind.scheme}://{kind.netloc}/"
    if session._proxy_config.proxy_url_for(address) or session._cert_file:
        raise NotDone("a proxy, or a certificate of the client's own")
    context = None
    if kind.scheme == "https":
        import ssl

        # An extra, as s3fs.
        from botocore.httpsession import get_cert_path  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if not session._verify:
            raise NotDone("certificates are not to be verified")
        context = ssl.create_default_context(cafile=get_cert_path(session._verify))
    config = client.meta.config
    port = kind.port or (443 if kind.scheme == "https" else 80)
    return Connections(kind.host, port, context, float(config.connect_timeout), float(config.read_timeout))


def _page(data: bytes) -> tuple[list[tuple[str, int]], str]:
    """The keys and sizes of one page of a listing, and what to ask for the next one with."""
    from urllib.parse import unquote_plus
    from xml.etree import ElementTree

    try:
        top = ElementTree.fromstring(data)
    except ElementTree.ParseError as refusal:
        raise BadAnswer(f"no listing: {refusal}") from None
    space = top.tag[: top.tag.find("}") + 1]
    if top.tag != f"{space}ListBucketResult":
        raise BadAnswer(f"no listing: {top.tag}"[:200])
    encoded = top.findtext(f"{space}EncodingType") == "url"
    found = []
    for item in top.iterfind(f"{space}Contents"):
        key, size = item.findtext(f"{space}Key"), item.findtext(f"{space}Size")
        if not key or not size or not size.isdigit():
            raise BadAnswer("a listing without a key or a size")
        found.append((unquote_plus(key) if encoded else key, int(size)))
    if top.findtext(f"{space}IsTruncated") != "true":
        return found, ""
    token = top.findtext(f"{space}NextContinuationToken")
    if not token:
        raise BadAnswer("a listing that does not say how it goes on")
    return found, token


def _quoted(text: str, safe: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=safe + "~")


def _sorted(query: str) -> str:
    return "&".join(sorted(word if "=" in word else f"{word}=" for word in query.split("&"))) if query else ""


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
