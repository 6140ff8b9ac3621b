"""On a real GPU: the stall per checkpoint of a sharded state (FSDP), and what is loaded back.

    python bench/sharded_gpu.py [--gigabytes 4]

One rank, since NCCL wants a GPU for each: the copy of a rank's own shards is the same with many. Needs PyTorch and a
GPU. Prints figures, and fails only when what is loaded back is not what was saved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
SAVES = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    given = parser.parse_args()
    import torch
    import torch.distributed as distributed
    import torch.distributed.checkpoint as torch_dcp
    from torch.distributed.checkpoint.staging import BlockingAsyncStager
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from gpuflow.runtime import checkpointing, dcp

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512", RANK="0", WORLD_SIZE="1")
    distributed.init_process_group("cpu:gloo,cuda:nccl")
    layers, width = 8, int((given.gigabytes * 2**30 / 4 / 3 / 8) ** 0.5)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).cuda()
    fully_shard(model, mesh=init_device_mesh("cuda", (1,)))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.randn(64, width, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    for _ in range(3):
        step()
    folder = tempfile.mkdtemp()
    size = sum(value.numel() * 4 * 3 for value in model.parameters())
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, a state of {size / 1e9:.1f} GB")

    def stalls(way: str) -> list[float]:
        found, future = [], None
        stager = BlockingAsyncStager(cache_staged_state_dict=True)
        for number in range(SAVES):
            place = os.path.join(folder, f"{way}-{number}".replace(" ", "-"))
            began = time.perf_counter()
            parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
            if way == "dcp.save":
                torch_dcp.save(parts, checkpoint_id=place)
            else:
                more = {"async_stager": stager} if "pinned" in way else {}
                future = torch_dcp.async_save(parts, checkpoint_id=place, **more)
            found.append(time.perf_counter() - began)
            if future is not None:
                future.result()
            shutil.rmtree(place)
            step()
        return found

    table = {way: stalls(way) for way in ("dcp.save", "dcp.async_save", "dcp.async_save, pinned")}
    with checkpointing(os.path.join(folder, "c"), every=1e9) as ckpt:
        saver = dcp.Saver(ckpt, model, optimizer)
        ours = []
        for number in range(SAVES):
            torch.cuda.synchronize()
            began = time.perf_counter()
            saver.save(step=number)
            ours.append(time.perf_counter() - began)
            kept = [value.to_local().clone() for value in model.parameters()]
            step()  # what is written must be what it was
            ckpt.wait()
        table["gpuflow dcp.Saver"] = ours
        facts = saver.restore()
    same = all(torch.equal(one.to_local(), other) for one, other in zip(model.parameters(), kept, strict=True))
    for way, found in table.items():
        print(f"  {way:<24} {statistics.median(found[1:]):7.3f} s   first {found[0]:6.2f} s")
    print(f"loaded back: {'the same' if same and facts == {'step': SAVES - 1} else 'NOT the same'}")
    distributed.destroy_process_group()
    shutil.rmtree(folder)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
