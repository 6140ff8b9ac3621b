"""Somebody else who may write to the store, without the key: everything a forged record could do to a run at once."""

from __future__ import annotations

import hashlib

from gpuflow.runtime.base import records
from gpuflow.runtime.base.record_fields import Record
from gpuflow.runtime.base.records import Claim, End, File, KeptOutput, Manifest, Success
from gpuflow.runtime.stores.store import StorageError, Store

KEY = b"the key of the explorer, 32 bytes"
ID = "f" * 16
_TEXT = b"forged"
_SHA = hashlib.sha256(_TEXT).hexdigest()


def forge(store: Store, base: str) -> int:
    """Take the numbers that come next and one far ahead, say that the run failed for good and that it is done."""
    objects: dict[str, Record] = {}
    for number in (1, 3, 99):
        objects[f"attempts/{number:06d}.json"] = Claim(
            attempt=number, id=ID, since=number, failures=9, interruptions=9, seconds=0.0
        )
        objects[f"attempts/{number:06d}-{ID}.end.json"] = End(
            outcome="failed (final)", final=True, exit_code=79, seconds=0.0
        )
    name = records.checkpoint_name(98, 1, ID)
    file = File(path="", size=len(_TEXT), sha256=_SHA, mode=0o644)
    objects[f"checkpoints/{name}/manifest.json"] = Manifest(
        checkpoint=name, entry="forged", kind="file", attempt=98, id=ID, files=[file]
    )
    result = KeptOutput(type="string", value="forged", sha256=_SHA)
    objects["success.json"] = Success(attempt=99, id=ID, outputs={"result": result})
    try:
        store.create(f"{base}/checkpoints/{name}/file", _TEXT)
        for key, record in objects.items():
            store.create(f"{base}/{key}", records.pack(record))
    except StorageError:
        return 1
    return 75
