"""A step in its image, through podman or docker (`--container`).

The supervisor is the container's first process. It is mounted, so that an image needs a Python and no gpuflow; folders
of the run are mounted at the step's own paths. Values of variables are inherited from the client's environment and
stand on no command line. A container has the user's own id, so that its files are the user's, and no more privileges
than the restricted standard of Kubernetes gives. Images are those of this machine: nothing is pulled.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuflow.core.errors import EnvironmentFailure, Finding, Where
from gpuflow.local.gpus import CUDA, NVIDIA, PATIENCE, Answer, Gpu, ask
from gpuflow.local.machine import Share
from gpuflow.pod.gang import SHM
from gpuflow.runtime import bundle
from gpuflow.spec.container import Security
from gpuflow.spec.step import Step

ENGINES = ("podman", "docker")
"""In the order in which they are looked for: podman needs no root and no daemon."""
SUPERVISOR = "/gpuflow/bin"
"""Where the supervisor is mounted."""
DEFAULT_GRACE = 30
ENGINE_FAILED = 125
"""The exit code of a client whose engine could not start the container. A command that is not in the image is 127, one
that cannot be started 126."""
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_OF_THE_CLIENT = frozenset({
    *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
    *("STORAGE_DRIVER", "STORAGE_OPTS", "DBUS_SESSION_BUS_ADDRESS"),
})  # fmt: skip
"""Variables that the client itself reads. A step's own values of them are no secrets, and stand in its words."""
_INFO = {
    "podman": "{{.Host.Security.Rootless}} {{.Host.CgroupsVersion}} {{range .Host.CgroupControllers}}{{.}} {{end}}",
    "docker": '{{range .SecurityOptions}}{{if eq . "name=rootless"}}true {{end}}{{end}}{{.CgroupVersion}} '
    "{{if .MemoryLimit}}memory{{end}} {{if .CPUCfsQuota}}cpu{{end}}",
}


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """podman or docker, as it is on this machine."""

    name: str
    program: str
    is_rootless: bool = False
    controllers: frozenset[str] = frozenset(("cpu", "memory"))
    """What it can limit."""

    def words(
        self,
        image: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        mounts: Mapping[str, Path],
        share: Share | None,
        name: str,
        *,
        step: Step | None = None,
        read_only: Collection[str] = (),
        grace: int = DEFAULT_GRACE,
    ) -> list[str]:
        """The client's command: it runs until the container has ended, hands on signals and the exit code. It is to be
        started with `client_environment`. `step`: for its limits, its working directory and its privileges."""
        words = [self.program, "run", "--rm", f"--name={name}", "--pull=never", "--init=false", "--log-driver=none"]
        words += [f"--stop-timeout={grace}", *self._identity(step)]
        words += self._limits(step) if step is not None else []
        for path, here in sorted(mounts.items()):
            words.append(f"--volume={here}:{path}{':ro' if path in read_only else ''}")
        for variable, value in sorted(_variables(environment, share).items()):
            words += ["--env", f"{variable}={value}" if variable in _OF_THE_CLIENT else variable]
        words += self._devices(share.gpus if share is not None else ())
        if step is not None and step.working_dir is not None:
            words.append(f"--workdir={step.working_dir}")
        return [*words, f"--entrypoint={command[0]}", image, *command[1:]]

    def client_environment(self, environment: Mapping[str, str], share: Share | None) -> dict[str, str]:
        """The environment in which the client starts: its own, and the values that it hands on."""
        given = {key: value for key, value in _variables(environment, share).items() if key not in _OF_THE_CLIENT}
        return {**os.environ, **given}

    def remarks(self, step: Step) -> list[str]:
        """What of a step does not hold in its container here, in sentences."""
        limits = {"memory": step.memory, "cpu": step.cpu}
        found = [
            f"its {name} limit is not held: {self.name} cannot limit {name} here"
            for name, amount in limits.items()
            if amount is not None and amount.limit is not None and name not in self.controllers
        ]
        if step.security is not None and step.security.privileged:
            found.append("it asks for all privileges of the node, and gets none")
        return found

    def require_images(self, images: Iterable[str]) -> None:
        """Refuse images that are not on this machine, all in one message."""
        absent = [image for image in dict.fromkeys(images) if self._ask("image", "inspect", image).code]
        if absent:
            text = f"{self.name} has no image {', '.join(absent)}, and a run pulls none"
            way_out = "; ".join(f"{self.name} pull {image}" for image in absent)
            raise _failure("GF942", text, f"{way_out}; or build and tag them")

    def require_gpus(self, gpus: Iterable[Gpu]) -> None:
        """Refuse GPUs that the engine has no name for."""
        unknown = [gpu.uuid for gpu in gpus if self.name == "podman" and _cdi_name(gpu) is None]
        if unknown:
            text = f"podman does not know the GPU {', '.join(unknown)}: no file in {CDI_FOLDERS[0]} describes it"
            raise _failure("GF943", text, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")

    def end(self, name: str, grace: int = DEFAULT_GRACE) -> bool:
        """End a container whose client may be gone: SIGTERM, and SIGKILL after its grace. Whether it was running."""
        if self._state(name) is None:
            return False
        self._ask("stop", "-t", str(grace), name, seconds=grace + PATIENCE)
        state = self._state(name)
        if state is not None:
            self._ask("rm", "--force", name)
            state = self._state(name)
        if state == "true":
            raise _failure("GF941", f"{self.name} could not end the container {name}", f"{self.name} rm --force {name}")
        return True

    def _state(self, name: str) -> str | None:
        """Whether a container runs, as the engine says it; None when there is none of that name."""
        answer = self._ask("container", "inspect", "--format={{.State.Running}}", name)
        if answer.code and "no such container" not in answer.errors.lower():
            raise _failure("GF941", f"{self.name} does not say whether {name} runs: {answer.reason}", None)
        return None if answer.code else answer.text.strip()

    def _ask(self, *words: str, seconds: float = PATIENCE) -> Answer:
        answer = ask((self.program, *words), seconds)
        if answer is None:
            text = f"{self.name} {words[0]} did not end within {seconds:g} s"
            raise _failure("GF941", text, f"see what {self.name} info says")
        return answer

    def _identity(self, step: Step | None) -> list[str]:
        security = (step.security if step is not None else None) or Security()
        if security.run_as_root or (self.is_rootless and self.name == "docker"):  # whose root is the user outside
            words = ["--user=0:0"]
        else:
            words = ["--userns=keep-id"] if self.is_rootless else [f"--user={os.getuid()}:{os.getgid()}"]
        words += ["--cap-drop=ALL", *(f"--cap-add={name}" for name in security.add_capabilities)]
        # With labels of SELinux, a container could not read the folders of the run.
        words += ["--security-opt=no-new-privileges", "--security-opt=label=disable"]
        return [*words, "--read-only"] if security.read_only_root else words

    def _limits(self, step: Step) -> list[str]:
        memory, cpu = (None if each is None else each.limit for each in (step.memory, step.cpu))
        words = []
        if memory is not None and "memory" in self.controllers:
            words.append(f"--memory={memory.value}b")
        if cpu is not None and "cpu" in self.controllers:
            words.append(f"--cpus={cpu.milli / 1000:g}")
        shm = step.shm or (step.volumes[SHM].memory if SHM in step.volumes else None)
        return words if shm is None else [*words, f"--shm-size={shm.value}b"]

    def _devices(self, gpus: Sequence[Gpu]) -> list[str]:
        if self.name == "docker" and gpus:
            return [f'--gpus="device={",".join(gpu.uuid for gpu in gpus)}"']
        return [f"--device=nvidia.com/gpu={_cdi_name(gpu) or gpu.uuid}" for gpu in gpus]


def find_engine(name: str | None = None) -> ContainerEngine:
    """The engine of this machine, or that of this name. `EnvironmentFailure` with the reasons where none answers."""
    reasons = []
    for each in ENGINES if name is None else (name,):
        program = shutil.which(each)
        if program is None:
            reasons.append(f"{each} is not installed")
            continue
        answer = ask((program, "info", f"--format={_INFO.get(each, _INFO['docker'])}"))
        if answer is not None and answer.code == 0:
            said = frozenset(answer.text.split())
            rootless = "true" in said
            # Users have limits with cgroup v2 alone.
            limits = said & {"cpu", "memory"} if not rootless or said & {"v2", "2"} else frozenset[str]()
            return ContainerEngine(each, program, rootless, limits)
        reasons.append(f"{each}: {'it does not answer' if answer is None else answer.reason}")
    hint = "install podman, or start docker's daemon; without --container, steps run in the current environment"
    raise _failure("GF941", f"no container engine: {'; '.join(reasons)}", hint)


def container_name(*parts: str | int) -> str:
    """A name that podman and docker accept, of a run, a step, a copy and an attempt."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(map(str, ("gpuflow", *parts))))


def write_supervisor(folder: Path) -> dict[str, Path]:
    """Put the supervisor into a folder of its version, and say where it is to be mounted. The site says the rest:
    `runtime: {delivery: config-map, mount: /gpuflow/bin}`."""
    place = folder / bundle.digest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    for name, text in bundle.files().items():
        part = place / f".{name}.{os.getpid()}"
        part.write_text(text, encoding="utf-8")
        part.rename(place / name)
    return {SUPERVISOR: place}


def _variables(environment: Mapping[str, str], share: Share | None) -> dict[str, str]:
    """What the programs get. Which GPUs are there the engine says by itself, except that there are none: many images
    ask for all."""
    own = share.environment() if share is not None else {CUDA: "", NVIDIA: "void"}
    if share is not None and share.gpus:
        own.pop(NVIDIA, None)
    return {**environment, **own}


def _cdi_name(gpu: Gpu) -> str | None:
    """What the files of the Container Device Interface call a GPU: older tools knew only numbers."""
    files = [file for folder in CDI_FOLDERS for file in folder.glob("*") if file.suffix in (".yaml", ".yml", ".json")]
    text = "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    if gpu.uuid in text:
        return gpu.uuid
    numbered = re.search(rf'name"?:\s*"?{gpu.index}"?\s*(,|\n|$)', text) if gpu.profile is None else None
    return str(gpu.index) if numbered and "nvidia.com/gpu" in text else None


def _failure(code: str, message: str, hint: str | None) -> EnvironmentFailure:
    return EnvironmentFailure(Finding(code, message, Where("--container"), hint))
