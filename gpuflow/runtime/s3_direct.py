"""S3 without a driver in the way, for the many and the large: plain requests, made as the driver would make them.

How a request looks is learned from the driver (`s3_learning`). Only answers that say "done" are taken; for anything
else the caller asks the driver, which tries again, follows and words errors as it always did. All that `Direct` knows
can be told to another process, which then makes the same requests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import time
import zlib

from gpuflow.runtime.http_connections import Answer, BadAnswer, Connections, FromFile, is_number
from gpuflow.runtime.s3_signing import EMPTY, UNSIGNED, Signer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_IN_VAIN = 10
"""So many requests in a row that did not do it: the driver takes over, for a while."""
_PAUSE = 60.0
"""Seconds of that while. Then one request is tried, and if it is in vain too there is another pause."""
_REFUSED = (400, 401, 403)
"""What servers say to credentials that have ended: S3 says 400."""
_NOT_SIGNED = frozenset({"user-agent", "accept-encoding", "accept"})
LATE = (socket.timeout, TimeoutError, BlockingIOError)
"""What a connection raises on which nothing came in time; the last is the system's word for it."""
_LISTED = 16 << 20
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
    """Who signs. These stay as they are told."""

    def __init__(self, signer: Signer) -> None:
        self.signer = signer

    def current(self) -> Signer:
        return self.signer

    def were_refused(self) -> None:
        """The server did not like them: they may have ended."""


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


class Direct:
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
    def told(cls, plain: Mapping[str, Any], credentials: Credentials) -> Direct:
        """As another process described it."""
        kinds = {
            name: Kind(method, before, netloc, headers, checked=checked)
            for name, (method, before, netloc, headers, checked) in plain["kinds"].items()
        }
        return cls(kinds, Server(*plain["server"]), credentials)

    def put(self, key: str, body: Sequence[bytes] | FromFile, sha256: str | None) -> None:
        """Write an object of a few pieces, or of a file. `sha256` is of all of them, where it is known."""
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
            query = "&".join(f"{name}={_quoted(value, '')}" for name, value in sorted(fields.items()))
            answer = self._ask(self._list, self._list.before, query, {}, (), EMPTY, (200,))
            try:
                found, following = _page(answer.read(_LISTED), prefix)
            except OSError as refusal:
                raise _not_done(refusal) from refusal
            yield from found
            if not following:
                return
            if following == token:
                raise NotDone("a listing that does not go on")
            token = following

    def _path(self, kind: Kind, key: str) -> str:
        return f"{kind.before}{_quoted(key, '/')}"

    def _upload(
        self, kind: Kind, path: str, query: str, body: Sequence[bytes] | FromFile, sha256: str | None
    ) -> Answer:
        more = {"content-length": str(body.size if isinstance(body, FromFile) else sum(map(len, body)))}
        if kind.checked:
            check = body.crc32 if isinstance(body, FromFile) else _crc32(body)
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
            raise _not_done(refusal) from refusal
        return answer

    def _ask(
        self,
        kind: Kind,
        path: str,
        query: str,
        more: Mapping[str, str],
        body: Sequence[bytes] | FromFile,
        payload: str,
        done: tuple[int, ...],
    ) -> Answer:
        if self._in_vain >= _IN_VAIN and time.monotonic() - self._paused < _PAUSE:
            raise NotDone("it did not work before")
        head = self._head(kind, path, query, more, payload)
        try:
            answer = self._connections.ask(head, body)
        except OSError as refusal:
            self._was_in_vain()
            raise _not_done(refusal) from refusal
        if answer.status in done:
            self._in_vain = 0
            return answer
        status = answer.status
        # Its connection may be used again when the server has no more to say.
        with contextlib.suppress(OSError):
            answer.read(64 << 10)
        if status in _REFUSED:
            self._credentials.were_refused()
        if status not in (404, 412, 416):
            self._was_in_vain()
        raise NotDone(f"HTTP status {status}")

    def _was_in_vain(self) -> None:
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
    late = isinstance(refusal, LATE)
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
    token = top.findtext(f"{space}NextContinuationToken")
    if not token:
        raise BadAnswer("a listing that does not say how it goes on")
    return found, token


def _crc32(pieces: Sequence[bytes]) -> int:
    check = 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
    return check


def _quoted(text: str, safe: str) -> str:
    from urllib.parse import quote

    return quote(text, safe=safe + "~")
