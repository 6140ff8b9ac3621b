"""What a gang's variables are for: frameworks find their ranks by them, without options or a launcher of their own.

The variables are those of the compiled pod, with what Kubernetes would fill in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuflow.pod.gang import gang_environment
from gpuflow.pod.gang_kinds import JOBSET_COORDINATOR
from gpuflow.spec.step import Step
from tests.runtime.harness import free_port

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "multi-node.md").read_text(encoding="utf-8")


def variables(rank: int, framework: str, port: int) -> dict[str, str]:
    """The variables of one rank of two."""
    gang = {"workers": 2, "rendezvous": {"framework": framework, "port": port}}
    step = Step.model_validate({"image": "i:1", "command": ["x"], "gang": gang})
    found = {}
    for entry in gang_environment(step, 0):
        place = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        filled = "127.0.0.1" if place == JOBSET_COORDINATOR else str(rank)
        found[entry["name"]] = entry.get("value", filled)
    return found


def both(words: list[str], framework: str, folder: Path) -> list[dict[str, Any]]:
    """Start the same command as two ranks; what each wrote to `$RESULT`, in order of rank."""
    port, processes = free_port(), []
    for rank in range(2):
        environ = {**os.environ, **variables(rank, framework, port), "RESULT": str(folder / str(rank))}
        environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        processes.append(subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, text=True))
    try:
        ends = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], ends
    return [json.loads((folder / str(rank)).read_text()) for rank in range(2)]


ACCELERATE = """
import json, os
from accelerate import Accelerator
found = Accelerator(cpu=True)
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
facts = {"rank": found.process_index, "of": found.num_processes}
facts["seen"] = [name for name in names if os.environ.get(name)]
open(os.environ["RESULT"], "w").write(json.dumps(facts))
found.end_training()
"""


def test_accelerate_under_torchrun_without_options_finds_two_ranks(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="Accelerate is not installed here (locks/frameworks.txt)")
    (tmp_path / "train.py").write_text(ACCELERATE)
    words = [sys.executable, "-m", "torch.distributed.run", str(tmp_path / "train.py")]
    found = both(words, "torchrun", tmp_path)
    assert [(each["rank"], each["of"]) for each in found] == [(0, 2), (1, 2)]
    # What deepspeed.init_distributed reads.
    assert all(each["seen"] == ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] for each in found)


def lines_for_jax() -> str:
    (found,) = re.findall(r"```python\n(import os\nimport jax\n.*?)```", GUIDE, re.DOTALL)
    return str(found)


def test_the_lines_for_jax_read_variables_that_a_gang_sets() -> None:
    read = set(re.findall(r'os\.environ\["(\w+)"\]', lines_for_jax()))
    assert read == {"GPUFLOW_LEADER", "GPUFLOW_WORLD_SIZE", "GPUFLOW_RANK"} <= set(variables(0, "env", 29500))
    compile(lines_for_jax(), "guide", "exec")


def test_the_lines_for_jax_of_the_guide_find_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax", reason="JAX is not installed here")
    text = lines_for_jax().replace('":29500"', "f\":{os.environ['PORT']}\"")
    text += "import json\nfacts = {'rank': jax.process_index(), 'of': jax.process_count()}\n"
    text += "open(os.environ['RESULT'], 'w').write(json.dumps(facts))\n"
    (tmp_path / "train.py").write_text(text)
    monkeypatch.setenv("PORT", str(free_port()))
    found = both([sys.executable, str(tmp_path / "train.py")], "env", tmp_path)
    assert found == [{"rank": 0, "of": 2}, {"rank": 1, "of": 2}]
