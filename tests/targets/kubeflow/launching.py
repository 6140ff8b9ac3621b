"""A small model of KFP's launcher: fill in what it fills in, run the command, read the outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuflow.targets.kubeflow.build import ENGINE
from tests.targets.kubeflow.kubelets import as_argument, kubelet


def launch(
    container: dict[str, Any], inputs: Mapping[str, str], outputs: tuple[str, ...], folder: Path
) -> dict[str, str]:
    """The values a container's command leaves for KFP; an error when the command fails."""
    container = as_argument(container)
    filled = {f"{{{{$.inputs.parameters['{name}']}}}}": value for name, value in inputs.items()}
    paths = {name: folder / "kfp" / name for name in outputs}
    filled[ENGINE.outputs_dir] = str(folder / "outputs")  # a container of its own would have its own /tmp
    filled |= {f"{{{{$.outputs.parameters['{name}'].output_file}}}}": str(path) for name, path in paths.items()}
    variables = {entry["name"]: entry["value"] for entry in container.get("env", [])}
    words = [_filled(kubelet(word, variables), filled) for word in container["command"]]
    (folder / "kfp").mkdir(parents=True)
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, **variables, "PATH": f"{scripts}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    subprocess.run(words, env=environment, cwd=folder, check=True, capture_output=True, timeout=60)
    return {name: path.read_text() for name, path in paths.items()}


def _filled(word: str, filled: Mapping[str, str]) -> str:
    for placeholder, value in filled.items():
        word = word.replace(placeholder, value)
    return word
