"""The GPUs of this machine, as `nvidia-smi` names them, and programs that are asked for something in bounded time.

GPUs are matched to the models of the catalog by product, as a site does with the label of nodes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpuflow.catalog import LabelTooLong, models_with_product, product_label
from gpuflow.catalog import model as find_model
from gpuflow.quantity import Quantity

PATIENCE = 10.0
"""Seconds that a program which is asked for something has."""
SMI_PATIENCE = 30.0
"""Seconds that nvidia-smi has: where no daemon keeps the driver awake, it wakes each GPU first."""
CUDA, NVIDIA = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a program ended that was asked for something, and what it said."""

    code: int
    text: str
    errors: str

    @property
    def reason(self) -> str:
        """Its last line of what went wrong."""
        lines = (self.errors.strip() or self.text.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit code {self.code}"


def ask(words: Sequence[str], seconds: float | None = None) -> Answer | None:
    """What a program says; None when it has not ended in time. One that the kernel holds, because a driver hangs, dies
    of no signal: nobody waits for it."""
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=text, stderr=errors, start_new_session=True
            )
        except OSError as refusal:
            return Answer(126, "", str(refusal))
        try:
            code = process.wait(PATIENCE if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)
        text.seek(0)
        errors.seek(0)
        return Answer(code, *(file.read(1 << 20).decode("utf-8", "replace") for file in (text, errors)))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this machine, or a MIG slice of one."""

    uuid: str
    index: int
    """As nvidia-smi counts."""
    product: str
    """Its name as the label of a node spells it: NVIDIA-H200."""
    memory: Quantity | None
    models: tuple[str, ...]
    """The models of the catalog that it can be; empty where the catalog does not know it."""
    profile: str | None = None
    """Of a slice."""
    card: str = ""
    """The UUID of the GPU that a slice is cut from."""
    users: tuple[str, ...] = ()
    """Programs that computed on it when the machine was looked at."""

    @property
    def name(self) -> str:
        known = " or ".join(self.models) or f"{self.product}, which the catalog does not know"
        return known if self.profile is None else f"{self.profile} of {known}"

    def has(self, need: Quantity) -> bool:
        """Whether programs can use so much of its memory."""
        known = [gib for name in self.models if (gib := find_model(name).usable_gib) is not None]
        usable = Quantity(f"{int(min(known) * 1024)}Mi") if known else self.memory
        return usable is not None and usable >= need


_SMI = "nvidia-smi"
_CARD_LINE = re.compile(r"GPU \d+: .*\(UUID: (\S+)\)")
_SLICE_LINE = re.compile(r"\s*MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)")


def gpus_here(told: list[str]) -> tuple[Gpu, ...]:
    """What nvidia-smi names. Where it is broken or hangs, that is told, and there are none."""
    if shutil.which(_SMI) is None:
        return ()
    rows = _rows("--query-gpu=index,uuid,name,memory.total,mig.mode.current", 5, told)
    found: list[Gpu] = []
    slices = _slices(told) if any(row[4] == "Enabled" for row in rows) else {}
    using = _programs(told) if rows else {}
    for index, uuid, name, memory, mig in rows:
        product = _product(name)
        models = tuple(known.id for known in models_with_product(product))
        size = Quantity(f"{memory}Mi") if memory.isdigit() else None
        if mig != "Enabled":
            found.append(Gpu(uuid, int(index), product, size, models, users=using.get(uuid, ())))
            continue
        if uuid not in slices:
            told.append(f"GPU {index} ({uuid}) is in MIG mode and has no slices: nobody gets it")
        for profile, own in slices.get(uuid, ()):
            users = (*using.get(own, ()), *using.get(uuid, ()))
            found.append(Gpu(own, int(index), product, None, models, profile, uuid, users))
    return tuple(found)


def _product(name: str) -> str:
    try:
        return product_label(name)
    except LabelTooLong:  # of no model in the catalog
        return "-".join(name.split())


def _rows(query: str, columns: int, told: list[str]) -> list[list[str]]:
    answer = ask((_SMI, query, "--format=csv,noheader,nounits"), SMI_PATIENCE)
    if answer is None:
        told.append(f"{_SMI} did not answer within {SMI_PATIENCE:g} s, so no GPU is given out")
        return []
    rows = [[part.strip() for part in line.split(",")] for line in answer.text.splitlines() if line.strip()]
    if answer.code or any(len(row) != columns or not row[0].isdigit() for row in rows):
        told.append(f'{_SMI} says "{answer.reason[:200]}", so no GPU is given out')
        return []
    return rows


def _slices(told: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Profile and UUID of the MIG slices of each GPU."""
    answer = ask((_SMI, "-L"), SMI_PATIENCE)
    if answer is None or answer.code:
        told.append(
            f"{_SMI} -L {'did not answer' if answer is None else f'says {answer.reason[:200]!r}'}: no MIG slices"
        )
        return {}
    found: dict[str, list[tuple[str, str]]] = {}
    card = ""
    for line in answer.text.splitlines():
        if match := _CARD_LINE.match(line):
            card = match[1]
        elif match := _SLICE_LINE.match(line):
            found.setdefault(card, []).append((match[1], match[2]))
    return found


def _programs(told: list[str]) -> dict[str, tuple[str, ...]]:
    """The programs that compute on each GPU now."""
    words = (_SMI, "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader,nounits")
    answer = ask(words, SMI_PATIENCE)
    if answer is None or answer.code:
        told.append(f"{_SMI} does not say which programs use the GPUs now")
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for line in answer.text.splitlines():
        uuid, _, program = line.partition(",")
        pid, _, name = program.partition(",")
        if pid.strip().isdigit():
            found[uuid.strip()] = (*found.get(uuid.strip(), ()), f"{PurePosixPath(name.strip()).name} ({pid.strip()})")
    return found


def visible(gpus: tuple[Gpu, ...], setting: str, told: list[str]) -> tuple[Gpu, ...]:
    """Those that the user's CUDA_VISIBLE_DEVICES names. As CUDA reads it: what follows an unknown name does not count,
    and the number of a GPU that is cut means its first slice."""
    kept: list[Gpu] = []
    for word in (part.strip() for part in setting.split(",")):
        if word.isdigit():
            named = [gpu for gpu in gpus if gpu.index == int(word)][:1]
        else:
            named = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if len(named) != 1:
            break
        kept += (gpu for gpu in named if gpu not in kept)
    told.append(f"{CUDA}={setting!r}: {len(kept)} of {len(gpus)} GPUs and slices are given out")
    numbers = any(word.strip().isdigit() for word in setting.split(","))
    if numbers and len({gpu.product for gpu in gpus}) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        told.append(f"its numbers are read as {_SMI} counts, not fastest first; a UUID says which GPU is meant")
    return tuple(kept)
