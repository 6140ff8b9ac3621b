"""Plain HTTP to one server: answers as they should be, and hostile, odd or broken ones, which end in an OSError."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.stores.http_connections import BadAnswer, Connections, FileBody, StaleConnection
from tests.runtime.harness import free_port
from tests.runtime.scripted_server import Peer, ScriptedServer, scripted

GET = b"GET /x HTTP/1.1\r\nhost: h\r\n\r\n"
PUT = b"PUT /x HTTP/1.1\r\nhost: h\r\ncontent-length: 300000\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def connections(server: ScriptedServer, seconds: float = 20.0) -> Connections:
    return Connections("127.0.0.1", server.port, None, 20.0, seconds)


def saying(*answers: bytes) -> Callable[[Peer], None]:
    """Answers the requests of each connection in turn, and then closes it."""

    def handle(peer: Peer) -> None:
        for answer in answers:
            if not peer.request()[0]:
                return
            peer.send(answer)

    return handle


def always(answer: bytes) -> Callable[[Peer], None]:
    def handle(peer: Peer) -> None:
        while peer.request()[0]:
            peer.send(answer)

    return handle


def asked(answer: bytes) -> bytes:
    """The body of what a server answers before it closes the connection."""
    with scripted(saying(answer)) as server:
        return connections(server).ask(GET).read(1 << 20)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200\r\ncontent-length:5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\nhe\r\n03 \r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: l\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_a_body_comes_however_its_end_is_told(answer: bytes) -> None:
    assert asked(answer) == b"hello"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_body_whatever_they_say_of_its_length(status: bytes) -> None:
    with scripted(always(b"HTTP/1.1 " + status + b"\r\nContent-Length: 9\r\n\r\n")) as server:
        kept = connections(server)
        assert [kept.ask(GET).read(10) for _ in range(2)] == [b"", b""]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n\r\n",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 \xb2\xb3\xb9 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n: nothing\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * (1 << 20) + b"\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 50_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(BadAnswer):
        asked(answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"5\r\nhel",
        b"5\r\nhello",
        b"5\r\nhello\r\n",
        b"5\r\nhello\r\n0\r\n",
        b"5\r\nhello!\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"0_5\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b";a=b\r\nhello\r\n0\r\n\r\n",
        b"five\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"f" * 40 + b"\r\nhello",
        b"0\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"5" + b" " * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_what_are_no_chunks_is_refused(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        asked(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)


@given(
    st.binary(max_size=300), st.sampled_from([b"", b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", OK]), st.binary(max_size=300)
)
def test_whatever_a_server_says_is_an_answer_or_an_error(before: bytes, known: bytes, after: bytes) -> None:
    try:
        answer = asked(known + before + b"\r\n\r\n" + after)
    except OSError:
        return
    assert isinstance(answer, bytes)


@given(st.binary(min_size=1, max_size=3000), st.data())
def test_a_chunked_body_is_the_same_however_it_is_cut(body: bytes, data: st.DataObject) -> None:
    ends = sorted({*data.draw(st.lists(st.integers(1, len(body)), max_size=6)), len(body)})
    chunks = [body[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    cut = data.draw(st.integers(1, len(sent)))

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent[:cut])
        peer.send(sent[cut:])
        peer.gone()

    with scripted(handle) as server:
        assert connections(server).ask(GET).read(4000) == body


def test_a_body_that_breaks_off_is_no_body() -> None:
    with pytest.raises(BadAnswer, match="3 bytes of an answer did not come"):
        asked(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")


def test_a_body_that_is_longer_than_wanted_is_refused_and_its_connection_closed() -> None:
    closed = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + bytes(300_000))
        with contextlib.suppress(ConnectionError):
            peer.gone()
        closed.set()

    with scripted(handle) as server:
        kept = connections(server)
        with pytest.raises(BadAnswer, match="more than 100 bytes") as refusal:
            kept.ask(GET).read(100)
        # Also while somebody still looks at the error, which holds on to where it was raised.
        assert refusal.traceback
        assert closed.wait(120)


def test_a_body_can_be_read_once() -> None:
    with scripted(saying(OK)) as server:
        answer = connections(server).ask(GET)
        assert answer.read(10) == b"ok"
        with pytest.raises(BadAnswer, match="read already"):
            answer.read(10)


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize(
    "answer", [b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
def test_a_body_comes_into_memory_that_is_there_and_the_connection_is_free_again(answer: bytes, size: int) -> None:
    with scripted(always(b"HTTP/1.1 200 OK\r\n" + answer)) as server:
        kept, buffer = connections(server), memoryview(bytearray(size))
        for _ in range(3):
            assert b"".join(bytes(piece) for piece in kept.ask(GET).pieces_in(buffer)) == b"hello"
        assert server.connections == 1


def test_a_body_that_breaks_off_on_its_way_into_memory_is_no_body() -> None:
    with scripted(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")) as server:
        answer = connections(server).ask(GET)
        with pytest.raises(BadAnswer, match="4 bytes"):
            list(answer.pieces_in(memoryview(bytearray(64))))


def test_a_file_is_sent_while_it_is_read_also_to_a_server_that_had_closed_the_connection(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "f").write_bytes(data)
    came: list[bytes] = []

    def handle(peer: Peer) -> None:
        came.append(peer.request()[1])
        peer.send(OK)
        peer.socket.shutdown(socket.SHUT_RDWR)

    with scripted(handle) as server, (tmp_path / "f").open("rb") as file:
        passed: list[int] = []
        body = FileBody(file.fileno(), len(data), memoryview(bytearray(1000)), passed.append)
        assert not passed
        kept = connections(server)
        for _ in range(2):
            assert kept.ask(PUT, body).read(10) == b"ok"
    assert came == [data, data]
    assert sum(passed) >= 2 * len(data)
    assert (body.sha256, body.crc32) == (hashlib.sha256(data).hexdigest(), zlib.crc32(data))


def test_a_file_that_becomes_shorter_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(300_000))
    with scripted(always(OK)) as server, path.open("rb") as file:
        body = FileBody(file.fileno(), 300_000, memoryview(bytearray(1000)), lambda _: None)
        os.truncate(path, 1000)
        with pytest.raises(BadAnswer, match="lost 299000 bytes"):
            connections(server).ask(PUT, body)


def test_a_file_that_changes_between_its_sums_and_its_sending_never_arrives_whole(tmp_path: Path) -> None:
    """Whoever writes through a mapped page may leave time and size as they were."""
    path = tmp_path / "f"
    path.write_bytes(bytes(300_000))
    came: list[bytes] = []

    def handle(peer: Peer) -> None:
        came.append(peer.request()[1])
        peer.send(OK)

    with scripted(handle) as server, path.open("r+b") as file:
        body = FileBody(file.fileno(), 300_000, memoryview(bytearray(1000)), lambda _: None)
        os.pwrite(file.fileno(), b"x", 150_000)
        with pytest.raises(BadAnswer, match="has changed"):
            connections(server).ask(PUT, body)
    assert came in ([], [b""])


def test_one_connection_serves_one_request_after_another() -> None:
    with scripted(always(OK)) as server:
        kept = connections(server)
        assert [kept.ask(GET).read(10) for _ in range(5)] == [b"ok"] * 5
        assert server.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_a_connection_with_more_to_say_or_told_to_close_is_not_used_again(first: bytes) -> None:
    def handle(peer: Peer) -> None:
        while peer.request()[0]:
            peer.send(first if peer.number == 1 else OK)

    with scripted(handle) as server:
        kept = connections(server)
        assert [kept.ask(GET).read(10) for _ in range(2)] == [b"ok", b"ok"]
        assert server.connections == 2


def test_a_hint_before_the_answer_is_not_taken_for_the_answer_of_the_next_request() -> None:
    go_on = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: l\r\n\r\n")
        go_on.wait(120)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst")
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
        peer.gone()

    with scripted(handle) as server:
        kept = connections(server)
        threading.Timer(0.2, go_on.set).start()
        assert [kept.ask(GET).read(10) for _ in range(2)] == [b"first", b"second"]


def test_a_connection_that_was_closed_between_two_requests_is_replaced() -> None:
    closed = threading.Event()

    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(OK)
        if peer.number > 1:
            peer.gone()
        peer.socket.shutdown(socket.SHUT_RDWR)
        closed.set()

    with scripted(handle) as server:
        kept = connections(server)
        assert kept.ask(GET).read(10) == b"ok"
        assert closed.wait(120)
        assert kept.ask(GET, [b"x" * 200_000]).read(10) == b"ok"
        assert server.connections == 2


def test_a_new_connection_that_is_closed_without_an_answer_is_an_error() -> None:
    with scripted(saying(b"")) as server:
        with pytest.raises(StaleConnection):
            connections(server).ask(GET)
        assert server.connections == 1


def test_after_an_error_the_next_request_has_a_connection_of_its_own() -> None:
    def handle(peer: Peer) -> None:
        while peer.request()[0]:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf" if peer.number == 1 else OK)
            if peer.number == 1:
                return

    with scripted(handle) as server:
        kept = connections(server)
        with pytest.raises(BadAnswer):
            kept.ask(GET).read(10)
        assert kept.ask(GET).read(10) == b"ok"
        abandoned = kept.ask(GET)
        pieces = abandoned.pieces()
        next(pieces)
        pieces.close()
        assert kept.ask(GET).read(10) == b"ok"
        assert server.connections == 3


def test_an_answer_that_comes_before_the_body_was_sent_is_heard() -> None:
    def handle(peer: Peer) -> None:
        peer.socket.recv(1000)
        peer.send(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        peer.socket.shutdown(socket.SHUT_WR)
        peer.gone()

    with scripted(handle) as server:
        head = b"PUT /x HTTP/1.1\r\nhost: h\r\ncontent-length: 8000000\r\n\r\n"
        answer = connections(server).ask(head, [bytes(1_000_000)] * 8)
        assert (answer.status, answer.read(10)) == (503, b"")


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"]
)
def test_a_server_that_goes_silent_is_not_waited_for_beyond_the_time(said: bytes) -> None:
    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(said)
        peer.gone()

    with scripted(handle) as server, pytest.raises(BlockingIOError):
        connections(server, 0.3).ask(GET).read(10)


def test_a_server_that_resets_the_connection_in_a_body_is_an_error() -> None:
    def handle(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted(handle) as server, pytest.raises((ConnectionResetError, BadAnswer)):
        connections(server).ask(GET).read(10)


def test_where_nobody_listens_it_is_an_error() -> None:
    with pytest.raises(ConnectionRefusedError):
        Connections("127.0.0.1", free_port(), None, 20.0, 20.0).ask(GET)
