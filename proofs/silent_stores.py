"""Stores that take a connection and do not answer: every call of every kind of store, with and without a SIGTERM.

A real S3 server stands behind a proxy that passes everything on until one request, the one of the case. From then on
it is *silent* (reads and says nothing), *deaf* (does not even read), *half* (says half of its answer and no more) or
*drips* (a byte a second). Calls through another driver than S3's, and a folder on a mount that hangs, stand still in
the call itself. Without a signal `gpuflow-run` must end with the code of the case, after a SIGTERM with 75 and within
its grace. Whatever is still alive long after is a failure.

By hand, and taken up again where it was stopped: `python -m proofs silent-stores`, or
`python -m proofs silent-stores --only output --jobs 4`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.runtime.harness import ROOT, environment
from tests.runtime.servers import BUCKET, s3_server

LIMIT, GRACE = 8, 6
SLACK = 3.0
"""Seconds that a busy machine may add to the grace."""
HANG = 120.0
"""Seconds after which a process is not waited for any more."""
FAULTS = ("silent", "deaf", "half", "drips")
BEFORE, WHILE, AFTER = "before the command", "while it runs", "after the command"


class Call(NamedTuple):
    """One request of one phase: what gpuflow-run is told to do, which request it is, and the code without a signal."""

    name: str
    phase: str
    request: str
    """A pattern of the request's first line."""
    code: int
    words: Sequence[str] = ()
    command: str = "true"
    many: bool = False
    """Whether there are so many files that processes of their own move them."""
    again: bool = False
    """Whether an attempt before has left a checkpoint in the store."""


STATE = ("--state", "{url}/state")
LOCAL = ("--state", "{tmp}/state")
ARTIFACTS = (*LOCAL, "--artifacts", "{url}/kept", "--output", "m:directory")
KEPT = (*LOCAL, "--checkpoint-dir", "{tmp}/ck", "--store", "{url}/ckpt", "--every", "1s")
MAKE = 'mkdir "$GPUFLOW_OUTPUTS/m" && echo x > "$GPUFLOW_OUTPUTS/m/a"'
LARGE = f'{MAKE} && head -c 20000000 /dev/zero > "$GPUFLOW_OUTPUTS/m/large"'
MANY = 'mkdir "$GPUFLOW_OUTPUTS/m" && for n in $(seq 220); do echo $n > "$GPUFLOW_OUTPUTS/m/$n"; done'
SAVE = 'cd "$GPUFLOW_CHECKPOINT_DIR" && mkdir .t && echo x > .t/a && mv .t one; {hit}'
SAVE_LARGE = 'cd "$GPUFLOW_CHECKPOINT_DIR" && head -c 20000000 /dev/zero > .t && mv .t one; {hit}'
HIT = "while [ ! -e {tmp}/hit ]; do sleep 0.1; done"
CALLS = (
    Call("state: list", BEFORE, r"GET \S*list-type", 78, STATE),
    Call("state: read", BEFORE, r"GET \S*/success\.json", 78, STATE),
    Call("state: probe", BEFORE, r"PUT \S*/probe/", 78, STATE),
    Call("state: claim", BEFORE, r"PUT \S*/attempts/000001\.json", 78, STATE),
    Call("state: end", AFTER, r"PUT \S*\.end\.json", 1, STATE, "exit 1"),
    Call("state: success", AFTER, r"PUT \S*/success\.json", 78, STATE),
    Call("input: list", BEFORE, r"GET \S*list-type\S*in", 78, (*LOCAL, "--input", "{tmp}/in={url}/in")),
    Call("input: get", BEFORE, r"GET \S*/in/1", 78, (*LOCAL, "--input", "{tmp}/in={url}/in")),
    Call(
        "input: get, by processes", BEFORE, r"GET \S*/many/1", 78,
        (*LOCAL, "--input", "{tmp}/in={url}/many"), many=True,
    ),
    Call(
        "input: head", BEFORE, r"HEAD \S*/in/1", 78,
        (*LOCAL, "--input", "{tmp}/in={url}/in/1", "--input-type", "{tmp}/in=file"),
    ),
    Call("output: trial", BEFORE, r"PUT \S*/trial", 78, ARTIFACTS, MAKE),
    Call("output: trial removed", BEFORE, r"DELETE \S*/trial", 78, ARTIFACTS, MAKE),
    Call("output: put", AFTER, r"PUT \S*/files/a", 78, ARTIFACTS, MAKE),
    Call("output: put, by processes", AFTER, r"PUT \S*/files/1", 78, ARTIFACTS, MANY, many=True),
    Call("output: begin parts", AFTER, r"POST \S*/files/large\?uploads", 78, ARTIFACTS, LARGE),
    Call("output: part", AFTER, r"PUT \S*/files/large\?\S*partNumber", 78, ARTIFACTS, LARGE),
    Call("output: complete parts", AFTER, r"POST \S*/files/large\?uploadId", 78, ARTIFACTS, LARGE),
    Call("output: list", AFTER, r"GET \S*list-type\S*files", 78, ARTIFACTS, MAKE),
    Call("output: manifest", AFTER, r"PUT \S*/manifest\.json", 78, ARTIFACTS, MAKE),
    Call("checkpoint: put", WHILE, r"PUT \S*/files/a", 0, KEPT, SAVE),
    Call("checkpoint: part", WHILE, r"PUT \S*/file\?\S*partNumber", 0, KEPT, SAVE_LARGE),
    Call("checkpoint: manifest", WHILE, r"PUT \S*/manifest\.json", 0, KEPT, SAVE),
    Call("restore: list", BEFORE, r"GET \S*list-type\S*checkpoints", 78, KEPT, SAVE, again=True),
    Call("restore: manifest", BEFORE, r"GET \S*/manifest\.json", 78, KEPT, SAVE, again=True),
    Call("restore: get", BEFORE, r"GET \S*/files/a", 78, KEPT, SAVE, again=True),
)  # fmt: skip
DRIVER_CALLS = {
    "cat_file": Call("read", BEFORE, "cat_file", 78, STATE),
    "pipe_file": Call("write", BEFORE, "pipe_file", 78, STATE),
    "find": Call("list", BEFORE, "find", 78, STATE),
    "rm_file": Call("delete", BEFORE, "rm_file", 78, STATE),
    "info": Call(
        "size", BEFORE, "info", 78, (*LOCAL, "--input", "{tmp}/in={url}/in/1", "--input-type", "{tmp}/in=file")
    ),
    "open": Call("put", AFTER, "open", 78, ARTIFACTS, MAKE),
}
FOLDER_CALLS = {
    "read": Call("read", BEFORE, "read", 78, ("--state", "{tmp}/mount")),
    "create": Call("create", BEFORE, "create", 78, ("--state", "{tmp}/mount")),
    "names": Call("list", BEFORE, "names", -1, ("--state", "{tmp}/mount")),
    "put_all": Call(
        "put", AFTER, "put_all", -1, (*LOCAL, "--artifacts", "{tmp}/mount", "--output", "m:directory"), MAKE
    ),
}
"""-1: nobody can tell a disk that flushes from a mount that hangs; it is waited for until a SIGTERM comes."""


class Case(NamedTuple):
    store: str
    call: Call
    fault: str
    told: bool

    @property
    def name(self) -> str:
        return f"{self.store} | {self.call.name} | {self.fault} | {'SIGTERM' if self.told else 'no signal'}"


def cases() -> Iterator[Case]:
    for told in (False, True):
        for store in ("s3", "s3 by its driver"):
            for call in CALLS:
                if store == "s3" or not call.many:
                    yield from (Case(store, call, fault, told) for fault in FAULTS)
        yield from (Case("another driver", call, "silent", told) for call in DRIVER_CALLS.values())
        yield from (Case("folder", call, "silent", told) for call in FOLDER_CALLS.values() if told or call.code != -1)


# -- what stands between


class Proxy:
    """Passes requests on to a real server, up to the one that matches: from then on it has the fault."""

    def __init__(self, upstream: int, request: str, fault: str, hit: Path) -> None:
        self._upstream, self._request, self._fault = upstream, re.compile(request.encode()), fault
        self._hit, self._over = hit, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with plain:
            try:
                self._answer(plain)
            except OSError:
                return

    def _answer(self, plain: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            if self._hit.exists() and self._fault == "deaf":
                self._over.wait()
                return
            more = plain.recv(65536)
            if not more:
                return
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        if self._request.match(head):
            self._hit.touch()
        faulty = self._hit.exists()
        if faulty and self._fault == "deaf":
            self._over.wait()
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].partition(b":")[2]) if lengths else 0
        if b"expect: 100-continue" in head.lower():
            plain.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(body) < length:
            more = plain.recv(1 << 20)
            if not more:
                return
            body += more
        if faulty and self._fault == "silent":
            self._over.wait()
            return
        answer = self._passed_on(head, body)
        if not faulty:
            plain.sendall(answer)
        elif self._fault == "half":
            plain.sendall(answer[: len(answer) // 2])
            self._over.wait()
        else:
            for at in range(len(answer)):
                plain.sendall(answer[at : at + 1])
                if self._over.wait(1.0):
                    return

    def _passed_on(self, head: bytes, body: bytes) -> bytes:
        lines = [
            line for line in head.split(b"\r\n") if line.partition(b":")[0].lower() not in (b"expect", b"connection")
        ]
        with socket.create_connection(("127.0.0.1", self._upstream), 60) as server:
            server.sendall(b"\r\n".join([*lines, b"connection: close", b"", body]))
            return b"".join(iter(lambda: server.recv(1 << 20), b""))


def stand_still(path: Path) -> None:
    path.touch()
    threading.Event().wait()


def run_by_driver(words: list[str]) -> int:
    """`gpuflow-run` that sends nothing around s3fs."""
    from gpuflow.runtime.stores import fsspec_store
    from gpuflow.runtime.supervise.main import main

    vars(fsspec_store)["learn_direct"] = lambda *_: None
    return main(words)


def run_other_driver(words: list[str]) -> int:
    """`gpuflow-run` on a driver that is not S3's, over a directory; one of its methods stands still."""
    import fsspec  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    from gpuflow.runtime.stores import fsspec_store
    from gpuflow.runtime.supervise.main import main

    where, method, hit = os.environ["SILENT_FOLDER"], os.environ["SILENT_METHOD"], Path(os.environ["SILENT_HIT"])

    def made(_: str) -> Any:
        found = fsspec.filesystem("dir", path=where, fs=fsspec.filesystem("file", auto_mkdir=True))
        if method in ("open", "info", "rm_file") or not hit.exists():
            setattr(found, method, lambda *_, **__: stand_still(hit))
        return found

    vars(fsspec_store)["_filesystem"] = made
    return main(words)


def run_folder(words: list[str]) -> int:
    """`gpuflow-run` with a folder of which one call stands still, as on a mount whose server is gone."""
    from gpuflow.runtime.stores import folder_store
    from gpuflow.runtime.stores.storage_timeout import with_disk_timeout, with_timeout
    from gpuflow.runtime.supervise.main import main

    where, method, hit = os.environ["SILENT_FOLDER"], os.environ["SILENT_METHOD"], Path(os.environ["SILENT_HIT"])
    real = getattr(folder_store.Folder, method)

    def still(self: Any, *given: Any) -> Any:
        if self.root == where:
            stand_still(hit)
        return real(self, *given)

    # Inside of what the store wraps around it.
    around = with_disk_timeout if FOLDER_CALLS[method].code == -1 else with_timeout
    setattr(folder_store.Folder, method, around(still))
    return main(words)


ENTRIES = {"s3 by its driver": run_by_driver, "another driver": run_other_driver, "folder": run_folder}


# -- one case


class Row(NamedTuple):
    case: str
    ok: bool
    code: int | None
    seconds: float
    last: str


def run_case(case: Case, upstream: int) -> Row:
    with tempfile.TemporaryDirectory(prefix="silent-") as folder:
        return _run_case(case, upstream, Path(folder))


def _run_case(case: Case, upstream: int, tmp: Path) -> Row:
    hit = tmp / "hit"
    proxy = Proxy(upstream, case.call.request, case.fault, hit)
    url = f"s3://{BUCKET}" if case.store.startswith("s3") else "gs://bucket"
    prefix = tmp.name
    extra = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "GPUFLOW_TRANSFER_PROCESSES": "2" if case.call.many else "0",
    }
    if case.store in ("another driver", "folder"):
        extra |= {"SILENT_METHOD": case.call.request, "SILENT_HIT": str(hit)}
        extra["SILENT_FOLDER"] = str(tmp / ("mount" if case.store == "folder" else "bucket"))
        (tmp / "bucket/bucket/in").mkdir(parents=True)
        (tmp / "bucket/bucket/in/1").write_text("x")
    else:
        url = f"{url}/{prefix}"
        _fill(upstream, prefix, many=case.call.many)

    def words(command: str) -> list[str]:
        given = [word.format(tmp=tmp, url=url) for word in case.call.words]
        limits = ["--storage-timeout", f"{LIMIT}s", "--grace", f"{GRACE}s", "--run-id", "r"]
        return [*limits, *given, "--", "sh", "-c", command]

    entry = (
        ["-m", "proofs.silent_stores", "--as", case.store]
        if case.store in ENTRIES
        else ["-m", "gpuflow.runtime.supervise.main"]
    )
    wait_for_it = HIT.format(tmp=tmp)
    command = case.call.command.replace("{hit}", "true" if case.call.again else wait_for_it)
    try:
        if case.call.again:
            first = {**extra, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{upstream}"}
            subprocess.run(
                [sys.executable, "-m", "gpuflow.runtime.supervise.main", *words(f"{command}; exit 1")],
                env=environment(first), capture_output=True, timeout=60, check=False,
            )  # fmt: skip
            subprocess.run(["rm", "-rf", str(tmp / "ck")], check=True)
        return _judge(case, [sys.executable, *entry, *words(command)], environment(extra), hit)
    finally:
        proxy.close()


def _judge(case: Case, words: list[str], environ: dict[str, str], hit: Path) -> Row:
    process = subprocess.Popen(
        words,
        env=environ,
        cwd=ROOT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    began = time.monotonic()
    while not hit.exists() and process.poll() is None and time.monotonic() < began + HANG:
        time.sleep(0.02)
    was_hit, began = hit.exists(), time.monotonic()
    if case.told and was_hit:
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
    try:
        said = process.communicate(timeout=HANG)[1]
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        said, code = process.communicate()[1], None
    took = time.monotonic() - began
    # A command that failed before the signal has failed, whatever could be stored of it.
    expected = 75 if case.told and case.call.code != 1 else case.call.code
    # The command itself may be over before it hears of it.
    fits = code == expected or (case.told and case.call.phase == WHILE and code == 0)
    # Whoever reads the log learns what was waited for.
    named = case.told or "s3://" in said or "gs://" in said or environ.get("SILENT_FOLDER", "s3://") in said
    ok = was_hit and fits and named and (not case.told or took <= GRACE + SLACK)
    last = (said.strip().splitlines() or [""])[-1] if was_hit else f"the call did not happen: {said[-200:]}"
    return Row(case.name, ok, code, round(took, 1), last[:240])


def _fill(upstream: int, prefix: str, *, many: bool) -> None:
    import boto3  # type: ignore[import-not-found,import-untyped,unused-ignore]  # an extra

    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{upstream}")
    for number in range(1, 4):
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/in/{number}", Body=b"x" * 5000)
    for number in range(220) if many else ():
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/many/1{number}", Body=b"x" * 5000)


def main() -> int:
    """Run the cases that are not yet in the file, and say what all of them came to."""
    if sys.argv[1:2] == ["--as"]:
        return ENTRIES[sys.argv[2]](sys.argv[3:])
    parser = argparse.ArgumentParser(prog="python -m proofs silent-stores")
    parser.add_argument("--only", default="", help="a pattern of cases")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--progress", type=Path, default=ROOT / "build" / "silent-stores.jsonl")
    options = parser.parse_args()
    options.progress.parent.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Row] = {}
    if options.progress.exists():
        found = (Row(*json.loads(line)) for line in options.progress.read_text().splitlines())
        rows = {row.case: row for row in found if row.ok}
    chosen = [case for case in cases() if re.search(options.only, case.name)]
    with tempfile.TemporaryDirectory(prefix="silent-server-") as folder, s3_server("moto", Path(folder)):
        upstream = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
        with ThreadPoolExecutor(options.jobs) as pool:
            for row in pool.map(
                lambda case: run_case(case, upstream), [each for each in chosen if each.name not in rows]
            ):
                rows[row.case] = row
                print(
                    f"{'ok ' if row.ok else 'BAD'} {row.seconds:5.1f} s  {row.code!s:>4}  {row.case}: {row.last}",
                    flush=True,
                )
                with options.progress.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    bad = [case.name for case in chosen if not rows[case.name].ok]
    print(f"silent stores: {len(chosen)} cases, {len(bad)} bad, --storage-timeout {LIMIT}s --grace {GRACE}s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
