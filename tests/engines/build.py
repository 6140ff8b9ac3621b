"""Build the real engines from their pinned Go modules: `python -m tests.engines.build [program…]`.

Each folder beside this file is a small Go module whose `go.mod` pins one project; a project that no module proxy has is
built from an archive that is pinned by its hash (archive.py). A program is built once for what it
is built from (the digest of `go.mod`, `go.sum` and how it is built) into a cache outside the tree, and moved into place
only when it is complete, so an interrupted run loses one build at most and the next run goes on from there.
The programs of one project are built one after another, since they share what is compiled; projects are built side by
side where the machine has the memory for it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from .archive import Archive, NoArchive

ENGINES = Path(__file__).resolve().parent
NICE = 10
REPORT_EVERY = 30.0
MEMORY_OF_A_BUILD = 5 << 30
"""Bytes that compiling and linking one of these programs may take."""
MOST_AT_ONCE = 2
"""One build already uses every core while it compiles; two fill the gaps in which one of them links."""
RECIPE = "1"
"""Raise it when programs are built in another way than before from the same modules."""
USUAL_SECONDS = {
    "kube-apiserver": 392, "kube-controller-manager": 81, "kube-scheduler": 8, "kubelet": 36, "kubectl": 40,
    "etcd": 70, "kwok": 258, "workflow-controller": 510, "argoexec": 164, "argo": 10, "kueue": 378,
    "jobset": 263, "coredns": 211, "trainer": 120, "mpi-operator": 200, "training-operator": 300,
    "volcano-controllers": 300, "volcano-scheduler": 120, "volcano-webhooks": 60,
    "kfp-driver": 500, "kfp-launcher": 20, "kfp-persistence": 20, "kfp-schedules": 20, "kfp-apiserver": 190,
}  # fmt: skip
"""On two busy cores from cold caches; what a build took on this machine is remembered instead."""


class BuildError(RuntimeError):
    """A build that cannot be done, in words for the person who asked for it."""


@dataclass(frozen=True)
class Project:
    """One Go module to build programs from; `stamp`: linker values, `share`: files kept beside them.

    With an `archive` the source comes from there, and `pinned` says which version it is. `cgo`: programs with C code.
    A program whose package starts with `./` has its `main` in the folder beside this file.
    """

    folder: str
    module: str
    programs: Mapping[str, str]
    stamp: Mapping[str, str] = field(default_factory=dict)
    share: Mapping[str, str] = field(default_factory=dict)
    patched: frozenset[str] = frozenset()
    archive: Archive | None = None
    pinned: str = ""
    cgo: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        if self.archive:
            return self.pinned
        text = (ENGINES / self.folder / "go.mod").read_text()
        found = re.search(rf"^(?:require)?\s*{re.escape(self.module)} (v\S+)", text, re.MULTILINE)
        if not found:
            raise BuildError(f"{self.folder}/go.mod requires no version of {self.module}")
        return found[1]

    @functools.cached_property
    def home(self) -> Path:
        """Where its programs are kept: a changed dependency or linker value gives another place."""
        return cache() / "engines" / f"{self.folder}-{self.version}-{self.digest}"

    @property
    def digest(self) -> str:
        """Of everything that its programs are built from."""
        found = hashlib.sha256(repr((RECIPE, sorted(self.stamp.items()), sorted(self.share.items()))).encode())
        if self.archive:
            found.update(repr((self.archive.sha256, sorted(self.archive.replaced.items()), self.pinned)).encode())
            return found.hexdigest()[:10]
        folder = ENGINES / self.folder
        own = (file for path in self.programs.values() if path.startswith("./") for file in folder.glob(f"{path}/*.go"))
        for file in (folder / "go.mod", folder / "go.sum", *sorted(own)):
            found.update(file.read_bytes() + b"\0")
        return found.hexdigest()[:10]

    def binary(self, program: str) -> Path:
        return self.home / "bin" / program


PROJECTS = (
    Project(
        "kubernetes",
        "k8s.io/kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
        },
        stamp={
            "k8s.io/component-base/version.gitVersion": "{version}",
            "k8s.io/component-base/version.gitMajor": "{major}",
            "k8s.io/component-base/version.gitMinor": "{minor}",
        },
    ),
    Project("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Project("kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, share={"kustomize/stage": "stage"}),
    Project(
        "argo",
        "github.com/argoproj/argo-workflows/v4",
        {
            name: f"github.com/argoproj/argo-workflows/v4/cmd/{name}"
            for name in ("workflow-controller", "argoexec", "argo")
        },
        stamp={"github.com/argoproj/argo-workflows/v4.version": "{version}"},
        share={"manifests/base/crds/minimal": "crds"},
        patched=frozenset({"argoexec", "argo"}),
    ),
    Project(
        "kueue",
        "sigs.k8s.io/kueue",
        {"kueue": "sigs.k8s.io/kueue/cmd/kueue"},
        share={
            "config/components/crd/bases": "crds",
            "config/components/webhook/manifests.yaml": "webhooks.yaml",
        },
    ),
    Project(
        "jobset",
        "sigs.k8s.io/jobset",
        {"jobset": "sigs.k8s.io/jobset"},
        share={
            "config/components/crd/bases": "crds",
            "config/components/webhook/manifests.yaml": "webhooks.yaml",
        },
    ),
    Project(
        "trainer",
        "github.com/kubeflow/trainer/v2",
        {"trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"},
        share={"manifests/base/crds": "crds", "manifests/base/webhook/manifests.yaml": "webhooks.yaml"},
    ),
    Project(
        "training-operator",
        "github.com/kubeflow/training-operator",
        {"training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"},
        share={"manifests/base/crds": "crds", "manifests/base/webhook/manifests.yaml": "webhooks.yaml"},
    ),
    Project(
        "mpi-operator",
        "github.com/kubeflow/mpi-operator",
        {"mpi-operator": "github.com/kubeflow/mpi-operator/cmd/mpi-operator"},
        share={"manifests/base/kubeflow.org_mpijobs.yaml": "crds.yaml"},
    ),
    # The version of its API is its own: the one that its go.mod names is a folder that the module does not ship.
    Project(
        "volcano",
        "volcano.sh/volcano",
        {
            "volcano-controllers": "volcano.sh/volcano/cmd/controller-manager",
            "volcano-scheduler": "volcano.sh/volcano/cmd/scheduler",
            "volcano-webhooks": "volcano.sh/volcano/cmd/webhook-manager",
        },
        share={
            "config/crd/volcano/bases": "crds",
            "config/crd/jobflow/bases": "flow-crds",
            "installer/helm/chart/volcano/config/volcano-scheduler.conf": "scheduler.yaml",
            "installer/helm/chart/volcano/templates/webhooks.yaml": "webhooks.yaml",
        },
    ),
    # Only the plugins that names of pods need: all of them would bring the libraries of every cloud.
    Project("coredns", "github.com/coredns/coredns", {"coredns": "./server"}),
    Project(
        "kubeflow",
        "github.com/kubeflow/pipelines",
        {
            "kfp-driver": "./backend/src/v2/cmd/driver",
            "kfp-launcher": "./backend/src/v2/cmd/launcher-v2",
            "kfp-persistence": "./backend/src/agent/persistence",
            "kfp-schedules": "./backend/src/crd/controller/scheduledworkflow",
            "kfp-apiserver": "./backend/src/apiserver",
        },
        share={
            "manifests/kustomize/base/pipeline": "pipeline",
            "backend/src/apiserver/config/config.json": "config.json",
        },
        archive=Archive(
            "kubeflow-pipelines-7b70c7b9.tar.gz",
            "f8cfc4f1f8880550dda06ffe9ec3001da220685d306d12799d529aafa46ea40c",
            "GPUFLOW_KUBEFLOW_SOURCE",
            "pipelines",
            # The version that its own go.mod names is not on the module proxy.
            {"github.com/argoproj/argo-workflows/v4": "github.com/argoproj/argo-workflows/v4@v4.0.7"},
        ),
        pinned="v2.17.0-7b70c7b9",
        cgo=frozenset({"kfp-apiserver"}),
    ),
)
BY_PROGRAM = {program: project for project in PROJECTS for program in project.programs}


def cache() -> Path:
    """Where everything that is expensive to make and does not belong in the tree is kept."""
    return Path(os.environ.get("GPUFLOW_CACHE") or Path.home() / ".cache" / "gpuflow").resolve()


def binary(program: str) -> Path:
    """The built program, or an error that says how to build it."""
    path = BY_PROGRAM[program].binary(program)
    if not path.exists():
        raise BuildError(f"{program} is not built; run: python -m tests.engines.build {program}")
    return path


def shared(folder: str, name: str) -> Path:
    """A file or folder that came with a project's source, such as its custom resource definitions."""
    project = next(project for project in PROJECTS if project.folder == folder)
    path = project.home / "share" / name
    if not path.exists():
        raise BuildError(f"{path} is missing; run: python -m tests.engines.build {' '.join(project.programs)}")
    return path


def missing(programs: Sequence[str] = ()) -> list[str]:
    """The programs, of those named or of all, that still have to be built."""
    return [name for name in programs or BY_PROGRAM if not _done(BY_PROGRAM[name], name)]


def judge(wanted: Sequence[str]) -> None:
    """Say why these programs cannot be built here, if they cannot."""
    if wanted and not shutil.which("go"):
        raise BuildError(f"building {', '.join(wanted)} needs the Go toolchain: no `go` in PATH")
    if any(name in BY_PROGRAM[name].cgo for name in wanted) and not shutil.which("gcc"):
        raise BuildError(f"building {', '.join(wanted)} needs a C compiler: no `gcc` in PATH")
    for project in {BY_PROGRAM[name].folder: BY_PROGRAM[name] for name in wanted}.values():
        if project.archive:
            try:
                project.archive.judge()
            except NoArchive as error:
                raise BuildError(str(error)) from None


def _without_source(wanted: Sequence[str]) -> list[str]:
    """Of what nobody asked for by name: what cannot be built here, since its archive is absent; said in one line."""
    left_out = []
    for project in PROJECTS:
        names = [name for name in wanted if BY_PROGRAM[name] is project]
        if names and project.archive and not project.archive.path.is_file():
            print(f"not building {', '.join(names)}: no source {project.archive.name} here", flush=True)
            left_out += names
    return left_out


def build(programs: Sequence[str] = ()) -> None:
    """Build what is missing of the named programs (all when none is named), saying what is being done and how long."""
    wanted = missing(programs)
    if not programs:
        left_out = _without_source(wanted)
        wanted = [name for name in wanted if name not in left_out]
    for name in list(wanted):
        if _take_over(BY_PROGRAM[name], name):
            wanted.remove(name)
    judge(wanted)
    if not wanted:
        return
    plan = Plan(wanted)
    lanes = [[name for name in wanted if BY_PROGRAM[name] is project] for project in PROJECTS]
    # The longest first, so that none is left over at the end.
    order = sorted(filter(None, lanes), key=lambda names: -sum(map(plan.usual, names)))
    plan.lanes = min(at_once(), len(order))
    print(f"building {', '.join(wanted)}: {plan.lanes} at once, {plan.left()}", flush=True)
    with ThreadPoolExecutor(plan.lanes) as pool:
        builds = [pool.submit(_build_lane, names, plan) for names in order]
        try:
            for one in as_completed(builds):
                one.result()
        except BaseException:
            plan.stop.set()
            for one in builds:
                one.cancel()
            raise


def at_once() -> int:
    """How many projects are built side by side: what the free memory carries."""
    with contextlib.suppress(OSError, ValueError):
        rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        free = next(int(row[1]) << 10 for row in rows if row[0] == "MemAvailable:")
        return max(1, min(MOST_AT_ONCE, free // MEMORY_OF_A_BUILD))
    return 1


class Plan:
    """What is to be built, what is done, and how long the rest takes by what it took before."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted, self.lanes, self.stop = list(wanted), 1, threading.Event()
        self._begun: dict[str, float] = {}
        self._done: set[str] = set()
        self._known = _times()

    def usual(self, program: str) -> float:
        return self._known.get(program, USUAL_SECONDS.get(program, 120))

    def begin(self, program: str) -> str:
        """The label of a build."""
        self._begun[program] = time.monotonic()
        number = len(self._begun)
        return f"[{number}/{len(self.wanted)}] {program} {BY_PROGRAM[program].version}"

    def end(self, program: str, seconds: float) -> None:
        self._done.add(program)
        _remember(program, seconds)

    def so_far(self, program: str) -> str:
        """How a build stands, in words."""
        spent = _span(time.monotonic() - self._begun[program])
        return f"{spent} so far, such a build took {_span(self.usual(program))}; {self.left()}"

    def left(self) -> str:
        rest = 0.0
        for name in self.wanted:
            if name not in self._done:
                spent = time.monotonic() - self._begun[name] if name in self._begun else 0.0
                rest += max(self.usual(name) - spent, 0.1 * self.usual(name) if spent else 0.0)
        return f"about {_span(rest / self.lanes)} left for all"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _times() -> dict[str, float]:
    """How long each program took the last time it was built here."""
    with contextlib.suppress(OSError, ValueError):
        return {str(key): float(value) for key, value in json.loads(_times_file().read_text()).items()}
    return {}


def _times_file() -> Path:
    return cache() / "engines" / "build-times.json"


def _remember(program: str, seconds: float) -> None:
    partial = _times_file().with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    partial.write_text(json.dumps({**_times(), program: round(seconds, 1)}, indent=1, sort_keys=True))
    partial.replace(_times_file())


def _build_lane(names: Sequence[str], plan: Plan) -> None:
    """The programs of one project, one after another."""
    for name in names:
        project = BY_PROGRAM[name]
        with _locked(project.home) as lock:
            # Another builder may have finished it while this one waited for the lock.
            if not _done(project, name):
                _build_one(project, name, lock, plan)


def _take_over(project: Project, program: str) -> bool:
    """Use a program that was built before programs were kept by content, when Go's own note in it names our modules."""
    old = cache() / "engines" / f"{project.folder}-{project.version}"
    source = old / "bin" / program
    if project.archive or not source.exists() or not shutil.which("go") or not _is_made_of(source, project):
        return False
    if not all((old / "share" / name).exists() for name in project.share.values()):
        return False
    for name in ("bin", "log", "share"):
        (project.home / name).mkdir(parents=True, exist_ok=True)
    for name in project.share.values():
        _copy_complete(old / "share" / name, project.home / "share" / name)
    partial = project.home / "bin" / f".{program}.{os.getpid()}"
    os.link(source, partial)
    partial.replace(project.binary(program))
    return True


def _is_made_of(file: Path, project: Project) -> bool:
    """Whether every module that Go noted in a program is one that this `go.sum` pins."""
    done = subprocess.run(["go", "version", "-m", str(file)], text=True, capture_output=True, check=False)
    noted = [line.split()[1:] for line in done.stdout.splitlines() if line.split()[:1] == ["dep"]]
    pinned = {tuple(line.split()) for line in (ENGINES / project.folder / "go.sum").read_text().splitlines()}
    # A module that is built from a folder of ours has no hash; its version stands in our go.mod.
    return bool(noted) and all(len(row) < 3 or tuple(row[:3]) in pinned for row in noted)


def _done(project: Project, program: str) -> bool:
    share = (project.home / "share" / name for name in project.share.values())
    return project.binary(program).exists() and all(path.exists() for path in share)


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[int]:
    """Hold the project's lock; its descriptor goes to go, so that it is held while an orphaned go still writes."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another builder of {home.name}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _build_one(project: Project, program: str, lock: int, plan: Plan) -> None:
    folder, home = ENGINES / project.folder, project.home
    for name in ("bin", "log", "share"):
        (home / name).mkdir(exist_ok=True)
    options = ["-trimpath", "-ldflags", _ldflags(project)]
    log = home / "log" / f"{program}.log"
    label = plan.begin(program)
    started = time.monotonic()
    print(f"{label}: such a build took {_span(plan.usual(program))}", flush=True)
    call = functools.partial(_go, log=log, lock=lock, label=label, program=program, plan=plan)
    if project.archive:
        source = folder = project.archive.unpack(home / "source")
        options.append("-mod=mod")
    else:
        call(folder, ["mod", "download", project.module])
        source = _module_source(folder, project.module)
    for inside, name in project.share.items():
        _copy_complete(source / inside, home / "share" / name)
    if program in project.patched:
        options.append(f"-modfile={_patched_argo(folder, source, home)}")
    partial = home / "bin" / f".{program}.partial"
    if program in project.cgo:
        # With Go's own resolver, so that all it shares with the other programs is compiled once.
        options += ["-tags", "netgo,osusergo"]
    words = ["build", *options, "-o", str(partial), project.programs[program]]
    call(folder, words, cgo=program in project.cgo)
    partial.replace(project.binary(program))
    if not missing(tuple(project.programs)):
        for name in ("patched", "source"):
            shutil.rmtree(home / name, ignore_errors=True)
    size = project.binary(program).stat().st_size >> 20
    seconds = time.monotonic() - started
    plan.end(program, seconds)
    print(f"{label}: done in {_span(seconds)}, {size} MB; {plan.left()}", flush=True)


def _ldflags(project: Project) -> str:
    major, minor, _ = project.version.removeprefix("v").split(".", 2)
    values = {
        key: text.format(version=project.version, major=major, minor=minor) for key, text in project.stamp.items()
    }
    return " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in values.items())])


def _go(
    folder: Path,
    arguments: list[str],
    *,
    log: Path,
    lock: int,
    label: str,
    program: str,
    plan: Plan,
    cgo: bool = False,
) -> None:
    """Run go in `folder`, its words into `log`; now and then say that it is still at work, and for how long."""
    environment = {**os.environ, "CGO_ENABLED": "1" if cgo else "0", "GOWORK": "off"}
    with log.open("a") as words:
        process = subprocess.Popen(
            ["nice", "-n", str(NICE), "go", *arguments],
            cwd=folder,
            env=environment,
            stdout=words,
            stderr=words,
            start_new_session=True,
            pass_fds=(lock,),
        )
        said = time.monotonic()
        try:
            while True:
                try:
                    code = process.wait(0.5)
                    break
                except subprocess.TimeoutExpired:
                    if plan.stop.is_set():
                        raise BuildError(f"{label}: stopped") from None
                    if time.monotonic() - said > REPORT_EVERY:
                        said = time.monotonic()
                        print(f"{label}: {plan.so_far(program)}", flush=True)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if code:
        tail = "\n".join(log.read_text().splitlines()[-20:])
        raise BuildError(f"{label} failed with exit code {code}; the log is {log} and ends:\n{tail}")


def _module_source(folder: Path, module: str) -> Path:
    done = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", module],
        cwd=folder,
        env={**os.environ, "GOWORK": "off"},
        text=True,
        capture_output=True,
        check=True,
    )
    return Path(done.stdout.strip())


def _copy_complete(source: Path, target: Path) -> None:
    if target.exists():
        return
    partial = target.with_name(f".{target.name}.partial")
    if source.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, partial)
    partial.replace(target)


def _patched_argo(folder: Path, source: Path, home: Path) -> Path:
    """A mod file that builds Argo from a copy in which two things missing from its module zip are put back.

    Module zips carry no symbolic links and no generated files: the executor lacks `signal_linux.go` (a link
    to `signal_darwin.go`), the command line the web page it embeds.
    """
    work, modfile = home / "patched", home / "patched" / "go.mod"
    if modfile.exists():
        return modfile
    shutil.rmtree(work, ignore_errors=True)
    copy = work / "source"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    for path in (copy, *copy.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    signals = copy / "workflow" / "executor" / "osspecific"
    shutil.copyfile(signals / "signal_darwin.go", signals / "signal_linux.go")
    page = copy / "ui" / "dist" / "app" / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("")
    shutil.copyfile(folder / "go.sum", work / "go.sum")
    module = next(project.module for project in PROJECTS if project.folder == folder.name)
    modfile.write_text(f"{(folder / 'go.mod').read_text()}\nreplace {module} => {copy}\n")
    return modfile


def listing() -> Iterator[str]:
    """One line per program: its version, whether it is built, how large it is."""
    for name, project in BY_PROGRAM.items():
        path = project.binary(name)
        state = f"built    {path.stat().st_size >> 20:4} MB  {path}" if _done(project, name) else "missing"
        yield f"{name:24} {project.version:10} {state}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.engines.build", description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="*", help=f"one of {', '.join(BY_PROGRAM)}; all when none is named")
    parser.add_argument("--list", action="store_true", help="print what is built and what is not")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.program) - set(BY_PROGRAM)):
        parser.error(f"no program called {', '.join(unknown)}; known: {', '.join(BY_PROGRAM)}")
    if options.list:
        print("\n".join(listing()))
        return 0
    started = time.monotonic()
    try:
        build(options.program)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what is finished is kept, the next run goes on from there", file=sys.stderr)
        return 130
    print(f"all built in {cache() / 'engines'} ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
