"""On a real GPU: a training killed and resumed bit for bit, the stall per checkpoint of a large state, and what reading
one back takes.

    python bench/runtime_gpu.py [--gigabytes 8] [--only resume|stall|restore]

Needs PyTorch and a GPU. Prints figures, and fails only when the resumed training does not end as the undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
STEPS = 600


def train(out: str) -> int:
    """A small network with dropout and AdamW; its final weights, hashed."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import hashlib

    import torch

    from gpuflow.runtime import checkpointing, pytorch

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(1024, 256)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with checkpointing(every=0.2) as ckpt:
        saver = pytorch.Saver(ckpt, model=model, optimizer=optimizer, schedule=schedule)
        step = saver.restore().get("step", 0)
        print(f"from step {step}", flush=True)
        while step < STEPS:
            batch = torch.randn(512, 256, device="cuda")
            loss = torch.nn.functional.mse_loss(model(batch), batch.roll(1, 1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            time.sleep(0.01)
            if ckpt.due():
                saver.save(step=step)
            if ckpt.interrupted:
                return 0
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.cpu().numpy().tobytes())
    Path(out).write_text(f"{digest.hexdigest()} {loss.item():.9f}")
    return 0


def resume(folder: Path, kills: int) -> bool:
    """The same training undisturbed and killed; True when both end the same."""
    script = [sys.executable, str(Path(__file__).resolve()), "--train"]
    subprocess.run([*script, str(folder / "plain")], check=True, cwd=folder, env=_environ())
    words = [
        sys.executable,
        "-m",
        "gpuflow.runtime.supervise.main",
        "--checkpoint-dir",
        str(folder / "c"),
        "--every",
        "0s",
    ]
    words += ["--store", str(folder / "s"), "--run-id", "r", "--grace", "20s", "--", *script, str(folder / "killed")]
    chance, ways = random.Random(4), []
    while True:
        process = subprocess.Popen(words, env=_environ(), stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        print("  ", process.stdout.readline().strip(), flush=True)
        if len(ways) >= kills:
            code = process.wait(300)
            break
        time.sleep(0.3 + chance.random())
        ways.append(chance.choice(["SIGTERM", "SIGKILL"]))
        if ways[-1] == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            process.kill()
        process.wait(120)
        if chance.random() < 0.5:
            _end_session(process.pid)
            shutil.rmtree(folder / "c", ignore_errors=True)
    plain, killed = (folder / "plain").read_text(), (folder / "killed").read_text()
    print(f"killed {len(ways)} times ({ways.count('SIGTERM')} SIGTERM, {ways.count('SIGKILL')} SIGKILL), exit {code}")
    print(f"  undisturbed {plain}\n  killed      {killed}\n  bit for bit the same: {plain == killed}")
    return plain == killed


def measure(way: str, gigabytes: float, folder: str) -> int:
    """Train with a large state and save it three times in one way; how long the training stood still."""
    import torch

    from gpuflow.runtime import checkpointing, pytorch

    count = int(gigabytes * 2**30 / 4 / 3 / 24)
    state = {f"layer{i}.{part}": torch.rand(count, device="cuda") for i in range(24) for part in ("w", "m", "v")}
    size = sum(value.nbytes for value in state.values())
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    class Part:
        def state_dict(self) -> dict[str, torch.Tensor]:
            return state

    def steps(number: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(number):
            for _ in range(30):
                torch.mm(matrix, matrix)
            for value in state.values():
                value.mul_(0.999)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    steps(5)
    quiet = steps(40)
    future = None
    with checkpointing(every=1e9) as ckpt:
        saver = pytorch.Saver(ckpt, model=Part())
        if way.startswith("dcp"):
            import torch.distributed as distributed
            import torch.distributed.checkpoint as dcp

            distributed.init_process_group(
                "cpu:gloo,cuda:nccl", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1
            )
            from torch.distributed.checkpoint.staging import BlockingAsyncStager

            extra = {"async_stager": BlockingAsyncStager(cache_staged_state_dict=True)} if "pinned" in way else {}
        stalls, totals = [], []
        for index in range(4):
            torch.cuda.synchronize()
            began = time.perf_counter()
            if way == "torch.save":
                torch.save(state, os.path.join(folder, f"plain-{index % 2}"))
            elif way.startswith("dcp"):
                if future is not None:
                    future.result()
                shutil.rmtree(os.path.join(folder, f"dcp-{index - 2}"), ignore_errors=True)
                place = os.path.join(folder, f"dcp-{index}")
                future = dcp.async_save(state, checkpoint_id=place, **extra)
            elif way == "gpuflow":
                saver.save(step=index)
            torch.cuda.synchronize()
            stalls.append(time.perf_counter() - began)
            steps(40)
            ran = time.perf_counter() - began
            while ran < 25 and way != "torch.save":
                ran = time.perf_counter() - began
                if future is not None and future.done():
                    break
                if way == "gpuflow" and (ckpt._background is None or not ckpt._background.is_alive()):
                    break
                time.sleep(0.05)
            totals.append(time.perf_counter() - began)
        if future is not None:
            future.result()
            distributed.destroy_process_group()
    print(json.dumps({"way": way, "bytes": size, "stalls": stalls, "until written": totals, "quiet": quiet}))
    return 0


def stall(folder: Path, gigabytes: float) -> None:
    """Each way in a process of its own; gpuflow's under the real supervisor, which uploads meanwhile."""
    script = [sys.executable, str(Path(__file__).resolve()), "--gigabytes", str(gigabytes), "--measure"]
    supervised = [sys.executable, "-m", "gpuflow.runtime.supervise.main", "--checkpoint-dir", str(folder / "ck")]
    supervised += ["--store", str(folder / "store"), "--run-id", "r", "--every", "0s", "--keep", "1", "--"]
    results = {}
    for way in ("torch.save", "dcp async", "dcp async, pinned", "gpuflow"):
        words = [*script, way, str(folder)]
        done = subprocess.run(
            [*supervised, *words] if way == "gpuflow" else words,
            env=_environ(), cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            print(f"{way}: ended with {done.returncode}\n{done.stderr[-1500:]}")
            continue
        results[way] = json.loads(done.stdout.splitlines()[-1])
        for left in folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    if not results:
        return
    size = next(iter(results.values()))["bytes"]
    base = statistics.median(results["torch.save"]["stalls"][1:]) if "torch.save" in results else float("nan")
    print(f"stall per checkpoint of {size / 1e9:.1f} GB (first one apart: it pins memory)")
    for way, result in results.items():
        later = statistics.median(result["stalls"][1:])
        print(f"  {way:<18} {later:7.3f} s  {later / base:6.3f} x   first {result['stalls'][0]:6.2f} s   "
              f"written after {statistics.median(result['until written'][1:]):6.2f} s")  # fmt: skip


def read_back(where: str, gigabytes: float, folder: str) -> int:
    """Save a training of this size, or with `where` read it back there: seconds, and GPU memory on top of the state."""
    import torch

    from gpuflow.runtime import checkpointing, pytorch

    side = int((gigabytes * 2**30 / 4 / 3 / 8) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(side, side, bias=False) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with checkpointing(str(Path(folder, "read"))) as ckpt:
        saver = pytorch.Saver(ckpt, background=False, model=model, optimizer=optimizer)
        if where == "write":
            saver.save()
            return 0
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        saver.restore(where)
        torch.cuda.synchronize()
        more = torch.cuda.max_memory_allocated() - before
        print(json.dumps({"seconds": time.perf_counter() - began, "state": before, "more": more}))
    return 0


def restore(folder: Path, gigabytes: float) -> None:
    """`restore()` through the host against reading straight to the GPU, each in a process of its own."""
    script = [sys.executable, str(Path(__file__).resolve()), "--gigabytes", str(gigabytes), "--read-back"]
    subprocess.run([*script, "write", str(folder)], check=True, env=_environ(), cwd=folder)
    for where in ("cpu", "cuda"):
        done = subprocess.run(
            [*script, where, str(folder)], check=True, env=_environ(), cwd=folder, capture_output=True, text=True
        )
        got = json.loads(done.stdout.splitlines()[-1])
        print(f"restore to {where:<5} {got['seconds']:6.2f} s, state on the GPU {got['state'] / 1e9:5.1f} GB, "
              f"at most {got['more'] / 1e9:5.1f} GB more meanwhile")  # fmt: skip


def _end_session(leader: int) -> None:
    """SIGKILL for what is left of a session, as when its machine is gone."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                os.kill(int(entry), signal.SIGKILL)
        except OSError:
            continue


def _environ() -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GPUFLOW_")}
    return {**plain, "PYTHONPATH": str(ROOT), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=8)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--only", choices=["resume", "stall", "restore"])
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--read-back", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.train)
    if options.measure:
        return measure(options.measure[0], options.gigabytes, options.measure[1])
    if options.read_back:
        return read_back(options.read_back[0], options.gigabytes, options.read_back[1])
    import torch

    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", flush=True)
    good = True
    with tempfile.TemporaryDirectory(prefix="gpuflow-bench-") as name:
        if options.only in (None, "resume"):
            good = resume(Path(name), options.kills)
    with tempfile.TemporaryDirectory(prefix="gpuflow-bench-") as name:
        if options.only in (None, "stall"):
            stall(Path(name), options.gigabytes)
    with tempfile.TemporaryDirectory(prefix="gpuflow-bench-") as name:
        if options.only in (None, "restore"):
            restore(Path(name), options.gigabytes)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
