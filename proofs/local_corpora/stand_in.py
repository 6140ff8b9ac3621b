"""`python -I -S stand_in.py OUTPUTS WORD… [--file NAME TYPE PATH]…`: writes each output with a value of its type.

OUTPUTS is JSON: the values of outputs that go to `$GPUFLOW_OUTPUTS` by their names, null for a file or a directory.
The words are those of the command that it stands for: what they refer to must be there. A step that keeps checkpoints
saves one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def write(path: Path, kind: str, value: Any) -> None:
    if kind == "directory":
        path.mkdir(parents=True, exist_ok=True)
        path /= "part-0"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def main(outputs: str, *words: str) -> None:
    for entry in json.loads(outputs):
        name, kind, value = entry["name"], entry["type"], entry["value"]
        at = Path(words[entry["word"]]) if "word" in entry else Path(os.environ["GPUFLOW_OUTPUTS"], name)
        write(at, kind, value)
    if folder := os.environ.get("GPUFLOW_CHECKPOINT_DIR"):
        part = Path(folder, ".part")
        part.write_text("saved")
        part.rename(Path(folder, "step-1"))
    print("stands for:", *words)


if __name__ == "__main__":
    main(*sys.argv[1:])
