"""Connections to one HTTP server that stay open between requests: a request costs a few system calls and little else.

Only what an object store needs: bodies of known length out; lengths, chunks or the end of the connection in. Whatever
is not understood is an error, and the caller asks its driver instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import ssl
import struct
import threading
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

_HEAD_MOST = 64 << 10
_RECEIVE = 256 << 10
_SMALL_BODY = 64 << 10
"""A body up to this size is sent with its head."""
_MOST_IDLE = 64
_HINTS = 16
"""Most answers that only announce the one that counts."""
_DIGITS = 18
"""Most digits of a number of bytes."""
_BROKEN_ERRORS = (ConnectionError, ssl.SSLError)
"""What a connection that the other side has closed raises; an encrypted one has words of its own for it."""


class BadAnswer(OSError):
    """What came is no HTTP answer that is understood here, or it broke off."""


class StaleConnection(BadAnswer):
    """A connection that had been left open was closed by the server before it answered."""


class FileBody:
    """A body that is read from an open file while it is sent, so that none of it is held. It is read twice: for its
    sums, and to be sent. What is sent is never complete unless it is the same."""

    def __init__(self, handle: int, size: int, buffer: memoryview, passed: Callable[[int], None]) -> None:
        """`passed` hears of each piece that is sent."""
        self._handle, self.size, self._buffer, self._passed = handle, size, buffer, passed
        hashed, self.crc32 = hashlib.sha256(), 0
        for piece in self._pieces():
            hashed.update(piece)
            self.crc32 = zlib.crc32(piece, self.crc32)
        self.sha256 = hashed.hexdigest()

    def __iter__(self) -> Iterator[memoryview]:
        check = sent = 0
        for piece in self._pieces():
            check, sent = zlib.crc32(piece, check), sent + len(piece)
            if sent == self.size and check != self.crc32:
                raise BadAnswer("the file has changed while it was sent")
            yield piece
            self._passed(len(piece))

    def _pieces(self) -> Iterator[memoryview]:
        at = 0
        while at < self.size:
            count = os.preadv(self._handle, [self._buffer[: self.size - at]], at)
            if not count:
                raise BadAnswer(f"the file has lost {self.size - at} bytes")
            yield self._buffer[:count]
            at += count


class Connections:
    """Those to one server. A thread takes one for a request and gives it back."""

    def __init__(
        self, host: str, port: int, context: ssl.SSLContext | None, connect_timeout: float, read_timeout: float
    ) -> None:
        self.host, self.port, self.context = host, port, context
        self.connect_timeout, self.read_timeout = connect_timeout, read_timeout
        self._free: list[Connection] = []
        self._lock = threading.Lock()

    def ask(self, head: bytes, body: Sequence[bytes] | FileBody = ()) -> Answer:
        """Send a request and read the head of the answer. A connection that went stale is replaced, once."""
        while True:
            with self._lock:
                connection = self._free.pop() if self._free else None
            fresh = connection is None
            connection = connection or self._connect()
            try:
                return connection.ask(head, body)
            except StaleConnection:
                connection.close()
                if fresh:
                    raise
            except BaseException:
                connection.close()
                raise

    def _connect(self) -> Connection:
        plain = socket.create_connection((self.host, self.port), self.connect_timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(self.read_timeout)
            if self.context is not None:
                return Connection(self, self.context.wrap_socket(plain, server_hostname=self.host), 0)
            # The system itself keeps the time: Python would ask it before each call whether it may be made.
            limit = struct.pack("@ll", int(self.read_timeout), max(1, int(self.read_timeout % 1 * 1_000_000)))
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            plain.settimeout(None)
            return Connection(self, plain, socket.MSG_WAITALL)
        except BaseException:
            plain.close()
            raise

    def give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._free) < _MOST_IDLE:
                self._free.append(connection)
                return
        connection.close()


class Connection:
    """One of them."""

    def __init__(self, among: Connections, plain: socket.socket, whole: int) -> None:
        self._among, self._socket, self._rest = among, plain, b""
        self._whole = whole
        """What makes `recv` wait for all that it is to bring, where that can be said."""

    def close(self) -> None:
        self._socket.close()

    def ask(self, head: bytes, body: Sequence[bytes] | FileBody) -> Answer:
        early: OSError | None = None
        try:
            if not isinstance(body, FileBody) and sum(map(len, body)) <= _SMALL_BODY:
                self._socket.sendall(b"".join([head, *body]))
            else:
                self._socket.sendall(head)
                for piece in body:
                    self._socket.sendall(piece)
        except _BROKEN_ERRORS as refusal:
            # The server may have said why before it closed.
            early = refusal
        answer = self._head()
        for _ in range(_HINTS):
            if answer.status >= 200:
                break
            answer = self._head()
        else:
            raise BadAnswer("an answer is announced again and again, and does not come")
        answer.reusable = answer.reusable and early is None
        return answer

    def _head(self) -> Answer:
        data = self._rest
        while True:
            end = data.find(b"\r\n\r\n")
            if end >= 0:
                break
            if len(data) > _HEAD_MOST:
                raise BadAnswer("the head of an answer is too long")
            try:
                more = self._socket.recv(_RECEIVE)
            except _BROKEN_ERRORS as refusal:
                raise BadAnswer(str(refusal)) if data else StaleConnection(str(refusal)) from None
            if not more:
                raise StaleConnection("the connection was closed") if not data else BadAnswer("an answer broke off")
            data += more
        self._rest = data[end + 4 :]
        return Answer(self, data[:end])

    def receive(self, most: int) -> bytes:
        """Some bytes, at most so many; none at the end."""
        if self._rest:
            data, self._rest = self._rest[:most], self._rest[most:]
            return data
        return self._socket.recv(min(most, _RECEIVE), self._whole)

    def receive_into(self, buffer: memoryview) -> int:
        """The same into memory that is there already: how many bytes came."""
        if self._rest:
            data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
            buffer[: len(data)] = data
            return len(data)
        return self._socket.recv_into(buffer, 0, self._whole)

    def line(self) -> bytes:
        while b"\r\n" not in self._rest:
            more = self._socket.recv(_RECEIVE)
            if not more or len(self._rest) > _HEAD_MOST:
                raise BadAnswer("an answer broke off")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def release(self, *, reusable: bool) -> None:
        if reusable and not self._rest:
            self._among.give_back(self)
        else:
            self.close()


class Answer:
    """The head of an answer, and its body once. Read the body or close it; then the connection is free again."""

    def __init__(self, connection: Connection, head: bytes) -> None:
        self._connection: Connection | None = connection
        lines = head.decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        status = rest.partition(" ")[0]
        if version not in ("HTTP/1.1", "HTTP/1.0") or len(status) != 3 or not is_number(status) or status == "101":
            raise BadAnswer(f"no HTTP answer: {lines[0]!r}"[:200])
        self.status = int(status)
        self.headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            name = name.lower()
            # A name with a space before its colon, or a line that goes on with one before it, is read in two ways.
            if (
                not colon
                or not name
                or " " in name
                or "\t" in name
                or (name in self.headers and name in ("content-length", "transfer-encoding"))
            ):
                raise BadAnswer(f"no HTTP answer: {line!r}"[:200])
            self.headers[name] = value.strip()
        words = self.headers.get("connection", "").lower().split(",")
        self.reusable = version == "HTTP/1.1" and "close" not in [word.strip() for word in words]
        self.length = self._length()

    def _length(self) -> int | None:
        """How long the body is; None when it ends with its last chunk, or with the connection."""
        if self.status in (204, 304) or self.status < 200:
            return 0
        if (coding := self.headers.get("transfer-encoding")) is not None:
            if coding.lower() != "chunked" or "content-length" in self.headers:
                raise BadAnswer(f"unknown transfer encoding {coding!r}"[:200])
            return None
        length = self.headers.get("content-length")
        if length is None:
            self.reusable = False
            return None
        if not is_number(length):
            raise BadAnswer(f"no length: {length!r}"[:200])
        return int(length)

    def pieces(self) -> Generator[bytes, None, None]:
        """The body; BadAnswer when it breaks off."""
        with self._body() as connection:
            if self.length is not None:
                yield from _read_exactly(connection, self.length)
            elif "transfer-encoding" in self.headers:
                yield from _read_chunked(connection)
            else:
                while True:
                    if not (data := connection.receive(_RECEIVE)):
                        break
                    yield data

    def pieces_in(self, buffer: memoryview) -> Generator[bytes | memoryview, None, None]:
        """The same, without new memory for each piece: it lies in the buffer until the next one is asked for."""
        if self.length is None:
            yield from self.pieces()
            return
        with self._body() as connection:
            yield from _read_into(connection, self.length, buffer)

    @contextlib.contextmanager
    def _body(self) -> Iterator[Connection]:
        """The connection, to read the body from, once."""
        connection, self._connection = self._connection, None
        if connection is None:
            raise BadAnswer("the body was read already")
        whole = False
        try:
            yield connection
            whole = True
        finally:
            connection.release(reusable=whole and self.reusable)

    def read(self, most: int) -> bytes:
        """All of a body that has at most so many bytes."""
        found: list[bytes] = []
        count = 0
        with contextlib.closing(self.pieces()) as pieces:
            for data in pieces:
                count += len(data)
                if count > most:
                    raise BadAnswer(f"an answer has more than {most} bytes")
                found.append(data)
        return b"".join(found)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _read_exactly(connection: Connection, count: int) -> Iterator[bytes]:
    while count:
        if not (data := connection.receive(count)):
            raise BadAnswer(f"{count} bytes of an answer did not come")
        count -= len(data)
        yield data


def _read_into(connection: Connection, count: int, buffer: memoryview) -> Iterator[memoryview]:
    while count:
        if not (came := connection.receive_into(buffer[: min(count, len(buffer))])):
            raise BadAnswer(f"{count} bytes of an answer did not come")
        count -= came
        yield buffer[:came]


def _read_chunked(connection: Connection) -> Iterator[bytes]:
    while True:
        words = connection.line().split(b";")[0].strip()
        if not words or len(words) > _DIGITS or words.strip(b"0123456789abcdefABCDEF"):
            raise BadAnswer(f"no chunk: {words!r}"[:200])
        if not (count := int(words, 16)):
            _trailer(connection)
            return
        yield from _read_exactly(connection, count)
        if connection.line():
            raise BadAnswer("a chunk is longer than was said")


def _trailer(connection: Connection) -> None:
    """What may stand after the last chunk, up to an empty line; as long as a head at most."""
    left = _HEAD_MOST
    while True:
        line = connection.line()
        left -= len(line) + 2
        if not line:
            return
        if left < 0:
            raise BadAnswer("the end of an answer is too long")


def is_number(text: str) -> bool:
    """Digits that Python and everybody else read as the same number."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
