"""What the supervisor costs: start-up, steady-state CPU, and the stall per checkpoint. Prints figures, asserts nothing.

python bench/runtime.py
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measuring import arguments

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpuflow.runtime import bundle  # noqa: E402  # the path, or the environment, is set above
from gpuflow.runtime.checkpoints.training import Checkpointing  # noqa: E402  # the path, or the environment, is set above

ENVIRON = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT)}

ENTRY = [sys.executable, "-S", "-c", "import sys; from gpuflow.runtime.supervise.main import main; sys.exit(main())"]
"""As the installed script does, without the packages of this environment's site."""


def timed(words: Sequence[str], repeats: int) -> tuple[float, float]:
    """Median wall and CPU milliseconds of a command."""
    walls, cpus = [], []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        subprocess.run(words, env=ENVIRON, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        walls.append(1000 * (time.perf_counter() - began))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return statistics.median(walls), statistics.median(cpus)


def latency(words: Sequence[str], repeats: int) -> float:
    """Median milliseconds until the command at the end of `words`, which prints the time, is running."""
    waits = []
    for _ in range(repeats):
        began = time.time()
        done = subprocess.run(
            words, env=ENVIRON, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        waits.append(1000 * (float(done.stdout) - began))
    return statistics.median(waits)


def start_up(folder: Path, repeats: int) -> None:
    """How much later a command starts, and what the whole attempt costs."""
    packed = folder / bundle.FILE
    for name, text in bundle.files().items():
        kept = text.replace('PLACE = "/", "/tmp"', f'PLACE = "/", "{folder}"')
        (folder / name).write_text(kept, encoding="utf-8")
    keeping = ["--checkpoint-dir", str(folder / "c"), "--store", str(folder / "s"), "--after-success", "again"]
    keeping += ["--run-id", "r"]
    ways = {
        "bare python": [sys.executable, "-S", "-c", "import os, sys; os.execvp(sys.argv[2], sys.argv[2:])", "--"],
        "gpuflow-run, outputs only": [*ENTRY, "--"],
        "gpuflow-run, with a store": [*ENTRY, *keeping, "--"],
        "mounted, outputs only": [sys.executable, "-S", str(packed), "--"],
        "mounted, with a store": [sys.executable, "-S", str(packed), *keeping, "--"],
    }
    bare = 0.0
    print(f"a command that does nothing, median of {repeats}")
    for name, words in ways.items():
        starts = latency([*words, "date", "+%s.%N"], repeats)
        _, cpu = timed([*words, "true"], repeats)
        bare = bare or starts
        more = f"({starts - bare:+6.1f}, {starts / bare:4.2f} x)"
        print(f"  {name:<28} starts after {starts:6.1f} ms {more}  CPU {cpu:6.1f} ms")


def steady_state(folder: Path, seconds: int) -> None:
    """CPU of a supervisor that waits for checkpoints which do not come."""
    words = [*ENTRY, "--checkpoint-dir", str(folder / "idle")]
    words += ["--store", str(folder / "idle-store"), "--run-id", "r", "--after-success", "again", "--", "sleep"]
    _, short = timed([*words, "0"], 3)
    _, long = timed([*words, str(seconds)], 1)
    print(f"steady state: {long - short:.0f} ms CPU in {seconds} s, {(long - short) / seconds / 10:.3f} % of a core")


def stall(folder: Path, megabytes: int, saves: int) -> None:
    """How long a program stands still for a checkpoint: uploaded behind its back, or copied before it goes on.

    As in a pod: the checkpoint directory is local and fast, in memory where there is room; the store is a disk.
    """
    memory = Path("/dev/shm")
    room = shutil.disk_usage(memory).free > 4 * megabytes << 20 if memory.is_dir() else False
    fast = Path(tempfile.mkdtemp(prefix="gpuflow-bench-", dir=memory if room else folder))
    block = os.urandom(1 << 20)

    def write(path: str) -> None:
        with open(path, "wb") as file:
            for _ in range(megabytes):
                file.write(block)

    def copied() -> float:
        began = time.perf_counter()
        path = fast / "plain"
        write(str(path))
        target = folder / "plain-store"
        shutil.copyfile(path, f"{target}.part")
        with open(f"{target}.part", "rb") as file:
            os.fsync(file.fileno())
        os.replace(f"{target}.part", target)
        return time.perf_counter() - began

    plain = statistics.median(copied() for _ in range(saves))
    code = (
        "import os, sys, time, statistics\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from gpuflow.runtime import checkpointing\n"
        "block, stalls = os.urandom(1 << 20), []\n"
        "def write(path):\n"
        "    with open(path, 'wb') as file:\n"
        f"        for _ in range({megabytes}): file.write(block)\n"
        "with checkpointing() as ckpt:\n"
        f"    for _ in range({saves}):\n"
        "        began = time.perf_counter(); ckpt.save(write); stalls.append(time.perf_counter() - began)\n"
        f"        time.sleep({3 * plain:.3f})\n"
        "print(statistics.median(stalls))\n"
    )
    words = [
        sys.executable,
        "-m",
        "gpuflow.runtime.supervise.main",
        "--checkpoint-dir",
        str(fast / "stall"),
        "--every",
        "0s",
    ]
    words += ["--store", str(folder / "stall-store"), "--run-id", "r", "--", sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(words, env=ENVIRON, check=True, capture_output=True, text=True)
    behind = float(done.stdout)
    shutil.rmtree(fast)
    print(f"stall per checkpoint of {megabytes} MB, median of {saves}")
    print(f"  written, copied and synced by the program  {1000 * plain:8.0f} ms")
    print(f"  written, uploaded by the supervisor        {1000 * behind:8.0f} ms  {behind / plain:.2f} x")


def api_cost(folder: Path, count: int) -> None:
    """What asking costs in every step."""
    os.environ.pop("GPUFLOW_CHECKPOINT_DIR", None)
    with Checkpointing(str(folder / "api"), every=3600) as ckpt:
        began = time.perf_counter()
        for _ in range(count):
            ckpt.due()
            _ = ckpt.interrupted
        each = (time.perf_counter() - began) / count
    print(f"due() and interrupted in a step: {1e6 * each:.2f} µs")


def main() -> int:
    smoke = arguments(__doc__).parse_args().smoke
    with tempfile.TemporaryDirectory(prefix="gpuflow-bench-") as name:
        folder = Path(name)
        start_up(folder, 1 if smoke else 25)
        steady_state(folder, 1 if smoke else 30)
        api_cost(folder, 1_000 if smoke else 200_000)
        stall(folder, 1 if smoke else 512, 1 if smoke else 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
