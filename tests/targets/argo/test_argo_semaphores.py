"""GPU steps that wait for a semaphore of their size, and the ConfigMap that says how many of each may run.

Tests gpuflow/cli/argo.py and gpuflow/targets/argo/templates.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.cli.main import main
from gpuflow.core.errors import GpuflowError
from gpuflow.targets.argo.templates import Size, semaphore_shares
from tests.targets.argo.manifests import HEAD, artifact, compiled, template

STEPS = """
steps:
  big: {command: [x], gpu: a100-80gb x 4}
  small: {command: [y], gpu: a100-80gb}
  slice: {command: [z], mig: 1g.10gb of a100-80gb}
  plain: {command: [w]}
"""


def test_each_gpu_step_holds_the_semaphore_of_its_size() -> None:
    manifest = compiled(STEPS, semaphores="gpus")
    keys = {}
    for name in ("big", "small", "slice"):
        (held,) = template(manifest, name)["synchronization"]["semaphores"]
        assert held["configMapKeyRef"]["name"] == "gpus"
        keys[name] = held["configMapKeyRef"]["key"]
    assert keys == {"big": "gpu-4", "small": "gpu-1", "slice": "mig-1g.10gb-1"}
    assert "synchronization" not in template(manifest, "plain")


def test_the_header_says_why_steps_wait() -> None:
    lines = [line for line in artifact(STEPS, semaphores="gpus").splitlines() if line.startswith("#")]
    assert "# GPU steps wait for a semaphore of their size: ConfigMap gpus, keys gpu-4, gpu-1, mig-1g.10gb-1." in lines
    assert not any("semaphore" in line for line in artifact(STEPS).splitlines())


def test_the_config_map_splits_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "p.yaml"
    source.write_text(HEAD + STEPS)
    words = ["argo", "semaphores", str(source), "--name", "gpus", "--namespace", "team-a"]
    assert main([*words, "--available", "nvidia.com/gpu=11"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["kind"] == "ConfigMap" and found["metadata"] == {"name": "gpus", "namespace": "team-a"}
    assert found["data"] == {"gpu-4": "2", "gpu-1": "3", "mig-1g.10gb-1": "1"}
    assert main([*words, "--available", "nvidia.com/gpu=4"]) == 2
    assert "GF309" in capsys.readouterr().err


@given(counts=st.sets(st.integers(1, 16), min_size=1, max_size=5), available=st.integers(1, 200))
def test_holders_of_all_sizes_together_never_take_more_than_there_is(counts: set[int], available: int) -> None:
    sizes = [Size("nvidia.com/gpu", count) for count in sorted(counts, reverse=True)]
    if sum(counts) > available:
        with pytest.raises(GpuflowError, match="GF309"):
            semaphore_shares(sizes, {"nvidia.com/gpu": available})
        return
    limits = semaphore_shares(sizes, {"nvidia.com/gpu": available})
    taken = sum(size.count * limit for size, limit in limits.items())
    assert all(limit >= 1 for limit in limits.values())
    assert taken <= available < taken + min(counts)
