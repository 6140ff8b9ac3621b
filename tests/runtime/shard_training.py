"""A training whose state is sharded over its ranks (FSDP), as torchrun or a gang starts it: `… FOLDER [NAME=VALUE …]`.

Each rank leaves `<folder>/rank-<n>.json`: where it began, where it ended, and a hash of the whole state as it sees it.
Every draw is of the rank's own random states, so that a resume that misses one of them ends with other weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]  # an extra
import torch.distributed as distributed  # type: ignore[import-not-found,unused-ignore]  # an extra
from torch.distributed.device_mesh import init_device_mesh  # type: ignore[import-not-found,unused-ignore]
from torch.distributed.fsdp import fully_shard  # type: ignore[import-not-found,unused-ignore]

from gpuflow.runtime import dcp, elastic, pytorch
from gpuflow.runtime.checkpoints.training import Checkpointing

WIDTH = 16


class Own:
    """A part that differs from rank to rank, as a loader of data does."""

    def __init__(self) -> None:
        self.drawn = 1000 * (1 + elastic.rank())

    def next(self) -> float:
        self.drawn += 1
        return float(self.drawn % 7)

    def state_dict(self) -> dict[str, int]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.drawn = state["drawn"]


def model_of(width: int) -> Any:
    torch.manual_seed(7)
    layers = [torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(width, width + 3)]
    model = torch.nn.Sequential(*layers)
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    torch.manual_seed(100 + elastic.rank())
    return model


def digest(model: Any, optimizer: Any) -> str:
    """A hash of all weights and of the optimizer's state, bit for bit; a collective."""
    found = hashlib.sha256()
    states = [optimizer.state[value] for value in model.parameters()]
    values = [*model.parameters(), *(state[name] for state in states for name in sorted(state))]
    for value in values:
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        found.update(whole.detach().contiguous().numpy().tobytes())
    return found.hexdigest()


def full_disk() -> None:
    """Rank 1 has no room for its shards."""
    if os.environ.get("FULL_DISK") == str(elastic.rank()):
        import errno

        def refuse(state: Any, path: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        pytorch.write = refuse


def train(
    folder: Path, steps: int, every: int, pause: float, hurry: str, keep_digests: bool, due: bool
) -> dict[str, Any]:
    """`hurry` is a file: once it is there, no step pauses."""
    full_disk()
    model = model_of(WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.9)
    own = Own()
    digests: dict[int, str] = {}
    with Checkpointing(str(folder / "c"), every=0.0 if due else 1e9) as ckpt:
        saver = dcp.Saver(ckpt, model, optimizer, schedule=schedule, each_rank={"own": own})
        step = begin = saver.restore().get("step", 0)
        loaded = digest(model, optimizer) if begin else ""
        (folder / f"up-{elastic.rank()}").touch()
        while step < steps:
            loss = model(torch.randn(4, WIDTH) + own.next()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if not (hurry and os.path.exists(hurry)):
                time.sleep(pause)
            asked, stop = elastic.agree(ckpt)
            if asked if due else step % every == 0 or stop:
                saver.save(step=step)
                if keep_digests:
                    digests[step] = digest(model, optimizer)
            if stop:
                break
        ckpt.wait()
        return {"from": begin, "step": step, "digest": digest(model, optimizer), "loaded": loaded, "at": digests}


def main(folder: str, *words: str) -> None:
    given = dict(word.split("=") for word in words)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    result = train(
        Path(folder),
        int(given.get("steps", "20")),
        int(given.get("every", "3")),
        float(given.get("pause", "0")),
        given.get("hurry", ""),
        "digests" in given,
        "due" in given,
    )
    path = Path(folder) / f"rank-{rank}.json"
    path.with_suffix(".part").write_text(json.dumps(result))
    path.with_suffix(".part").replace(path)
    if rank == 0 and "GPUFLOW_OUTPUTS" in os.environ:
        (Path(os.environ["GPUFLOW_OUTPUTS"]) / "digest").write_text(result["digest"])
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
