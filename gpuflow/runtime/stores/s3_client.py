"""S3 without a driver in between, for many files and for large ones: plain requests as the driver would make them.

How a request looks is learned from the driver: address, headers, encryption, credentials, certificates. The driver
prepares one request of each kind, which is caught before it is sent. The signature that is computed here (AWS Signature
Version 4, standard library only) must equal the driver's, else nothing is sent around the driver.

Only answers that say "done" are taken; for anything else the caller asks the driver, which tries again, follows
redirects and words errors. `DirectClient` can be handed to another process, which then makes the same requests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import threading
import time
import zlib

from gpuflow.runtime.stores.http_connections import Answer, BadAnswer, Connections, FileBody, is_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


class Signer:
    """Signs requests for one region with one set of credentials. The day's key is made once."""

    def __init__(self, access_key: str, secret_key: str, token: str | None, region: str) -> None:
        self.access_key, self.token, self.region = access_key, token, region
        self._secret = secret_key
        self._day, self._key = "", b""
        self._second, self._now = -1, ""

    def plain(self) -> list[str | None]:
        """What another process needs to sign as this one does. It is secret."""
        return [self.access_key, self._secret, self.token, self.region]

    def now(self) -> str:
        """The time as a request says it. Made anew once a second."""
        second = int(time.time())
        if second != self._second:
            self._now, self._second = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second)), second
        return self._now

    def authorization(self, method: str, path: str, query: str, headers: Mapping[str, str]) -> str:
        """The value of `Authorization`. All `headers` are signed: their names in lower case, values without margins.
        Path and query are percent-encoded, the query's fields are sorted."""
        when, payload = headers["x-amz-date"], headers["x-amz-content-sha256"]
        names = sorted(headers)
        lines = "".join([f"{name}:{headers[name]}\n" for name in names])
        signed = ";".join(names)
        request = hashlib.sha256(f"{method}\n{path}\n{query}\n{lines}\n{signed}\n{payload}".encode()).hexdigest()
        scope = f"{when[:8]}/{self.region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{when}\n{scope}\n{request}"
        signature = hmac.new(self._of(when[:8]), text.encode(), hashlib.sha256).hexdigest()
        return f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"

    def _of(self, day: str) -> bytes:
        if day != self._day:
            key = f"AWS4{self._secret}".encode()
            for word in (day, self.region, "s3", "aws4_request"):
                key = hmac.new(key, word.encode(), hashlib.sha256).digest()
            self._key, self._day = key, day  # in this order: other threads read them in the other one
        return self._key if day == self._day else self._of(day)


_IN_VAIN = 10
"""So many requests in a row that did not do it: the driver takes over, for a while."""
_PAUSE = 60.0
"""Seconds of that while. Then one request is tried, and if it is in vain too there is another pause."""
_REFUSAL_CODES = (400, 401, 403)
"""What servers say to credentials that have ended: S3 says 400."""
_NOT_SIGNED = frozenset({"user-agent", "accept-encoding", "accept"})
LATE_ERRORS = (socket.timeout, TimeoutError, BlockingIOError)
"""What a connection raises on which nothing came in time; the last is the system's word for it."""
_MOST_LISTING = 16 << 20
"""Most bytes of one page of a listing."""


class NotDone(Exception):
    """The server did not do it, or it is not known whether it did: ask the driver."""

    silent = False
    """Whether it did not answer in time: nor would it answer the driver."""


class Kind:
    """What all requests of one kind have in common."""

    def __init__(self, method: str, before: str, netloc: str, headers: Mapping[str, str], *, checked: bool) -> None:
        self.method, self.before, self.netloc, self.headers = method, before, netloc, headers
        self.checked = checked
        """Whether a checksum of the body is sent with it."""

    def plain(self) -> list[Any]:
        return [self.method, self.before, self.netloc, dict(self.headers), self.checked]


class Credentials:
    """Fixed credentials for signing."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer

    def current(self) -> Signer:
        return self.signer

    def were_refused(self) -> None:
        """The server refused the credentials; they may have expired."""


class Server:
    """Where requests go. Of a `secure` one the certificates of these authorities are believed, else the system's."""

    def __init__(
        self, host: str, port: int, secure: bool, certificates: str | None, connect: float, read: float
    ) -> None:
        self.secure = secure
        self.plain: list[Any] = [host, port, secure, certificates, connect, read]

    def connections(self) -> Connections:
        host, port, secure, certificates, connect, read = self.plain
        context = None
        if secure:
            import ssl

            context = ssl.create_default_context(cafile=certificates)
        return Connections(host, port, context, connect, read)


class DirectClient:
    """One bucket. `put`, `part`, `get` and `page` raise NotDone where a driver must take over."""

    def __init__(self, kinds: Mapping[str, Kind], server: Server, credentials: Credentials) -> None:
        self._put, self._part = kinds["put"], kinds["part"]
        self._get, self._list = kinds["get"], kinds["list"]
        self._server, self._credentials = server, credentials
        self._connections = server.connections()
        self.secure = server.secure
        self._in_vain, self._paused = 0, 0.0

    def signer(self) -> Signer:
        """Who signs now."""
        return self._credentials.current()

    def plain(self) -> dict[str, Any]:
        """All that another process needs to make such requests, but for who signs them."""
        kinds = {"put": self._put, "part": self._part, "get": self._get, "list": self._list}
        return {"kinds": {name: kind.plain() for name, kind in kinds.items()}, "server": self._server.plain}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], credentials: Credentials) -> DirectClient:
        """As another process described it."""
        kinds = {
            name: Kind(method, before, netloc, headers, checked=checked)
            for name, (method, before, netloc, headers, checked) in plain["kinds"].items()
        }
        return cls(kinds, Server(*plain["server"]), credentials)

    def put(self, key: str, body: Sequence[bytes] | FileBody, sha256: str | None) -> None:
        """Write an object of a few pieces, or of a file. `sha256` is of all of them, where it is known."""
        self._upload(self._put, self._path(self._put, key), "", body, sha256).close()

    def part(self, key: str, upload: str, number: int, body: Sequence[bytes]) -> dict[str, Any]:
        """Send one part of a large object; what the request that completes it says of the part."""
        query = f"partNumber={number}&uploadId={_quote(upload, '')}"
        answer = self._upload(self._part, self._path(self._part, key), query, body, None)
        answer.close()
        if not (tag := answer.headers.get("etag")):
            raise NotDone("a part without a tag")
        found = {"PartNumber": number, "ETag": tag}
        checksum = answer.headers.get("x-amz-checksum-crc32")
        return {**found, "ChecksumCRC32": checksum} if checksum else found

    def get(self, key: str, begin: int, end: int, tag: str | None = None) -> tuple[Answer, int, str | None]:
        """Bytes from `begin` up to `end` of an object, how long all of it is, and its tag. With a tag: only of the
        object that has it still."""
        more = {"range": f"bytes={begin}-{end - 1}"}
        if tag:
            more["if-match"] = tag
        answer = self._ask(self._get, self._path(self._get, key), "", more, (), EMPTY_SHA256, (200, 206))
        if answer.status == 200 and begin == 0 and answer.length is not None:
            return answer, answer.length, answer.headers.get("etag")
        words = answer.headers.get("content-range", "")
        first, _, total = words.partition("/")
        if answer.status != 206 or not is_number(total) or not first.startswith(f"bytes {begin}-"):
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
            query = "&".join(f"{name}={_quote(value, '')}" for name, value in sorted(fields.items()))
            answer = self._ask(self._list, self._list.before, query, {}, (), EMPTY_SHA256, (200,))
            try:
                found, following = _page(answer.read(_MOST_LISTING), prefix)
            except OSError as refusal:
                raise _not_done(refusal) from refusal
            yield from found
            if not following:
                return
            if following == token:
                raise NotDone("a listing that does not go on")
            token = following

    def _path(self, kind: Kind, key: str) -> str:
        return f"{kind.before}{_quote(key, '/')}"

    def _upload(
        self, kind: Kind, path: str, query: str, body: Sequence[bytes] | FileBody, sha256: str | None
    ) -> Answer:
        more = {"content-length": str(body.size if isinstance(body, FileBody) else sum(map(len, body)))}
        if kind.checked:
            check = body.crc32 if isinstance(body, FileBody) else _crc32(body)
            more["x-amz-checksum-crc32"] = base64.b64encode(check.to_bytes(4, "big")).decode()
        if self.secure and kind.checked:
            sha256 = (
                UNSIGNED_PAYLOAD  # as drivers do: what is encrypted on the way and has a checksum need not be hashed
            )
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
            raise _not_done(refusal) from refusal
        return answer

    def _ask(
        self,
        kind: Kind,
        path: str,
        query: str,
        more: Mapping[str, str],
        body: Sequence[bytes] | FileBody,
        payload: str,
        done: tuple[int, ...],
    ) -> Answer:
        if self._in_vain >= _IN_VAIN and time.monotonic() - self._paused < _PAUSE:
            raise NotDone("it did not work before")
        head = self._head(kind, path, query, more, payload)
        try:
            answer = self._connections.ask(head, body)
        except OSError as refusal:
            self._note_failure()
            raise _not_done(refusal) from refusal
        if answer.status in done:
            self._in_vain = 0
            return answer
        status = answer.status
        # Its connection may be used again when the server has no more to say.
        with contextlib.suppress(OSError):
            answer.read(64 << 10)
        if status in _REFUSAL_CODES:
            self._credentials.were_refused()
        if status not in (404, 412, 416):
            self._note_failure()
        raise NotDone(f"HTTP status {status}")

    def _note_failure(self) -> None:
        self._in_vain, self._paused = self._in_vain + 1, time.monotonic()

    def _head(self, kind: Kind, path: str, query: str, more: Mapping[str, str], payload: str) -> bytes:
        signer = self._credentials.current()
        headers = {**kind.headers, **more, "host": kind.netloc}
        headers["x-amz-date"], headers["x-amz-content-sha256"] = signer.now(), payload
        if signer.token:
            headers["x-amz-security-token"] = signer.token
        signed = {name: value for name, value in headers.items() if name not in _NOT_SIGNED}
        headers["authorization"] = signer.authorization(kind.method, path, query, signed)
        where = f"{path}?{query}" if query else path
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{kind.method} {where} HTTP/1.1\r\n{lines}\r\n".encode()


def _not_done(refusal: OSError) -> NotDone:
    late = isinstance(refusal, LATE_ERRORS)
    found = NotDone("no answer in time" if late else f"{type(refusal).__name__}: {refusal}")
    found.silent = late
    return found


def _page(data: bytes, prefix: str) -> tuple[list[tuple[str, int]], str]:
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
        if not key or not size or not is_number(size):
            raise BadAnswer("a listing without a key or a size")
        try:
            key = unquote_plus(key, errors="strict") if encoded else key
        except UnicodeDecodeError:
            raise BadAnswer(f"no key: {key!r}"[:200]) from None
        if not key.startswith(prefix):
            raise BadAnswer(f"not what was asked for: {key!r}"[:200])
        found.append((key, int(size)))
    if top.findtext(f"{space}IsTruncated") != "true":
        return found, ""
    if not (token := top.findtext(f"{space}NextContinuationToken")):
        raise BadAnswer("a listing that does not say how it goes on")
    return found, token


def _crc32(pieces: Sequence[bytes]) -> int:
    check = 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
    return check


def _quote(text: str, safe: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=safe + "~")


_RENEWED = 60.0
"""Seconds after which credentials are asked for again; who keeps them renews them long before they end."""
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
_KNOWN_CHECKSUMS = ("x-amz-checksum-crc32", "x-amz-checksum-mode")


class _NotSent(Exception):
    """Raised in place of sending, with the request."""

    def __init__(self, request: Any) -> None:
        super().__init__("caught before it was sent")
        self.request = request


class CaughtRequest(Kind):
    """A request of one kind as the driver would have sent it."""

    def __init__(self, request: Any, marker: str, query: Sequence[str]) -> None:
        from urllib.parse import urlsplit

        url = urlsplit(request.url)
        headers = {name.lower(): _as_text(value).strip() for name, value in request.headers.items()}
        self.scheme, self.host, self.port = url.scheme, url.hostname or "", url.port
        before, found, after = str(url.path).partition(marker)
        self.query = url.query
        fields = sorted(word.partition("=")[0] for word in url.query.split("&") if word)
        strange = bool(after) or not (found or "prefix" in query) or fields != sorted(query)
        if strange or url.scheme not in ("http", "https") or not self.host or "@" in url.netloc:
            raise NotDone(f"an address that is not known: {url.scheme}://{url.netloc}{url.path}")
        strange = any(name.startswith("x-amz-checksum-") and name not in _KNOWN_CHECKSUMS for name in headers)
        trailer = headers.get("x-amz-trailer", "x-amz-checksum-crc32")
        if strange or trailer != "x-amz-checksum-crc32" or "x-amz-s3session-token" in headers:
            raise NotDone("requests of a kind that is not known")
        super().__init__(
            str(request.method),
            before,
            headers.get("host") or url.netloc,
            {name: value for name, value in headers.items() if name not in _OWN},
            checked="x-amz-checksum-crc32" in headers or "x-amz-trailer" in headers,
        )
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
        fields = self.query.split("&") if self.query else []
        query = "&".join(sorted(word if "=" in word else f"{word}=" for word in fields))
        return signer.authorization(self.method, self._path, query, headers) == given

    def region(self) -> str:
        return self._sent.get("authorization", "").partition("Credential=")[2].partition(",")[0].split("/")[-3]


class Catcher:
    """Lets the driver prepare requests and catches them before they are sent; others have no such key."""

    def __init__(self, driver: Any, client: Any, marker: str) -> None:
        self._driver, self._client, self._marker = driver, client, marker

    def kind(self, method: str, operation: str, query: Sequence[str], **named: Any) -> CaughtRequest:
        """One kind of request, which has these fields in its query."""

        def catch(request: Any, **_: Any) -> None:
            if self._marker in request.url:
                raise _NotSent(request)

        event, events = f"before-send.s3.{operation}", self._client.meta.events
        events.register_first(event, catch)
        try:
            self._driver.call_s3(method, **named)
        except Exception as caught:
            if (request := _catch(caught)) is None:
                raise
            return CaughtRequest(request, self._marker, query)
        finally:
            events.unregister(event, catch)
        raise NotDone("a request was not caught")


class DriverCredentials(Credentials):
    """The driver's, asked for again from time to time."""

    def __init__(self, driver: Any, credentials: Any, region: str) -> None:
        self._driver, self._credentials, self._region = driver, credentials, region
        self._lock = threading.Lock()
        super().__init__(self._ask())
        self._asked = time.monotonic()

    def current(self) -> Signer:
        if time.monotonic() - self._asked > _RENEWED:
            with self._lock:
                if time.monotonic() - self._asked > _RENEWED:
                    self.signer, self._asked = self._ask(), time.monotonic()
        return self.signer

    def were_refused(self) -> None:
        self._asked = float("-inf")

    def _ask(self) -> Signer:
        try:
            found = _wait(self._driver, self._credentials.get_frozen_credentials)
        except Exception as refusal:
            raise NotDone(f"no credentials: {refusal}") from refusal
        words = (found.access_key, found.token or "", self._region)
        if not all(word.isascii() and word.isprintable() for word in words):
            # A line break, as files and Secrets often end with, would be one in the head of a request.
            raise NotDone("credentials that cannot stand in a header")
        return Signer(found.access_key, found.secret_key, found.token, self._region)


def learn_direct(driver: Any, bucket: str) -> DirectClient | None:
    """A way around the driver to a bucket, or None where it is not known how."""
    if not hasattr(driver, "call_s3") or not hasattr(driver, "set_session"):
        return None
    # Whatever is different in this version of the driver, the driver itself still works.
    with contextlib.suppress(Exception):
        return _learn_direct(driver, bucket)
    return None


def _learn_direct(driver: Any, bucket: str) -> DirectClient:
    marker = f"gpuflow-{os.urandom(8).hex()}"
    _wait(driver, driver.set_session)
    client = _wait(driver, driver.get_s3, bucket)
    common = {"Bucket": bucket, "Key": marker}
    caught = Catcher(driver, client, marker)
    part = {**common, "UploadId": "u", "PartNumber": 1, "Body": b"x"}
    listed = ["list-type", "prefix", "encoding-type"]
    kinds = {
        "put": caught.kind("put_object", "PutObject", [], **common, Body=b"x"),
        "part": caught.kind("upload_part", "UploadPart", ["partNumber", "uploadId"], **part),
        "get": caught.kind("get_object", "GetObject", [], **common),
        "list": caught.kind("list_objects_v2", "ListObjectsV2", listed, Bucket=bucket, Prefix=marker),
    }
    credentials = DriverCredentials(driver, client._request_signer._credentials, kinds["put"].region())
    if not all(kind.signed_alike(credentials.signer) for kind in kinds.values()):
        raise NotDone("the driver signs in another way")
    if len({(kind.scheme, kind.host, kind.port) for kind in kinds.values()}) != 1:
        raise NotDone("not one server for all")
    return DirectClient(kinds, _server(client, kinds["put"]), credentials)


def _wait(driver: Any, action: Any, *words: Any) -> Any:
    from fsspec.asyn import sync  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    return sync(driver.loop, action, *words)


def _catch(error: BaseException | None) -> Any:
    while error is not None:
        if isinstance(error, _NotSent):
            return error.request
        error = error.__cause__ or error.__context__
    return None


def _server(client: Any, kind: CaughtRequest) -> Server:
    """As the driver connects: its certificates and times; not where it goes through a proxy or shows a certificate."""
    session = client._endpoint.http_session
    address = f"{kind.scheme}://{kind.netloc}/"
    if session._proxy_config.proxy_url_for(address) or session._cert_file:
        raise NotDone("a proxy, or a certificate of the client's own")
    certificates = None
    if kind.scheme == "https":
        # An extra, as s3fs.
        from botocore.httpsession import get_cert_path  # type: ignore[import-not-found,import-untyped,unused-ignore]

        if not session._verify:
            raise NotDone("certificates are not to be verified")
        certificates = get_cert_path(session._verify)
    config, secure = client.meta.config, kind.scheme == "https"
    port = kind.port or (443 if secure else 80)
    times = float(config.connect_timeout), float(config.read_timeout)
    return Server(kind.host, port, secure, certificates, *times)


def _as_text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
