"""`gpuflow run --container`: steps in their images, through a real podman where there is one.

Tests gpuflow/local/attempt.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.local import run
from gpuflow.local.containers import ContainerEngine
from tests.local.programs import finish, kill, outputs, run_steps, start, wait_for, write
from tests.local.test_containers import IMAGE, podman, podman_variables

__all__ = ["podman", "podman_variables"]

PIPELINE = f"""steps:
  a:
    image: {IMAGE}
    command: [sh, -c, 'mkdir -p /data/x; echo "$WORD $0" > /data/x/f; echo 3 > $GPUFLOW_OUTPUTS/v; echo hello', b]
    env: {{WORD: 'a$(b)', TOKEN: {{secret: s, key: k}}}}
    volumes: {{/data: {{claim: d}}}}
    outputs: {{v: int}}
  b:
    image: {IMAGE}
    needs: [a]
    volumes: {{/data: {{claim: d}}}}
    command: [sh, -c, 'cat /data/x/f > $GPUFLOW_OUTPUTS/v; test $GPUFLOW_ATTEMPT = 2', {{output: a.v}}]
    outputs: {{v: string}}
    retry: {{failures: 1}}
"""


@pytest.mark.slow
def test_steps_run_in_their_images(podman: ContainerEngine, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hidden")
    result = run_steps(PIPELINE, container=True)
    log = (result.folder / "steps" / "a" / "1" / "log").read_text()
    assert result.state == "succeeded", log
    assert outputs(result) == {"a": {"v": 3}, "b": {"v": "a$(b) b"}} and log == "hello\n"
    assert result.steps[1].attempts == 2 and not Path("/data").exists()


@pytest.mark.slow
def test_an_image_that_is_not_here(podman: ContainerEngine, here: Path) -> None:
    with pytest.raises(GpuflowError, match="GF942"):
        run_steps("steps:\n  a: {image: localhost/no-such:1, command: ['true']}\n", container=True)
    assert not Path(".gpuflow/runs").exists()


@pytest.mark.slow
def test_a_container_that_lost_its_run_is_ended_before_the_step_goes_on(podman: ContainerEngine, here: Path) -> None:
    script = "test -e /data/done && exit 0; mkdir /data/busy || exit 9; trap 'mkdir /data/done; exit 0' TERM; "
    script += "while :; do sleep 0.1; done"
    text = f'steps:\n  a: {{image: {IMAGE}, volumes: {{/data: {{claim: d}}}}, command: [sh, -c, "{script}"]}}\n'
    process = start(str(write(here, text)), "--container")
    wait_for(lambda: list(here.glob(".gpuflow/runs/*/shared/claims/d/busy")), "the program")
    kill(process.pid)
    process.communicate()
    result = run(here / "toy.yaml", resume="", container=True)
    assert result.state == "succeeded" and result.steps[0].attempts == 2
    assert finish(start(str(here / "toy.yaml"), "--container", "--resume"))[0] == 2  # nothing is left to do
