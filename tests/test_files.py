"""Files are opened as what they must be: ordinary, of bounded size, within the repository that names them.

Tests gpuflow/core/files.py.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuflow.core import files
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow
from tests.conftest import ROOT

__all__ = ["gpuflow"]

PIPELINE = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n  a: {image: i:1, command: [x]}\n"
OUTER = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: outer\nsteps:\n  a: {pipeline: %s}\n"
SITE = "apiVersion: gpuflow/v1\nkind: Site\nname: mine\nextends: %s\nnamespace: team\n"
QUOTA = (
    "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: team}\nspec: {hard: {pods: 5}}\n"
    "status: {hard: {pods: 5}, used: {pods: 0}}\n---\napiVersion: gpuflow/v1\nkind: Snapshot\nassumed: [Node]\n"
)
TOKEN = "token-that-nobody-may-see"
SECRET = f"users: [{{name: admin, user: {{token: {TOKEN}}}}}]\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Git repository with a secret beside it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(SECRET)
    folder = tmp_path / "repository"
    for name in (".git", "pipelines", "cluster", "argo_templates"):
        (folder / name).mkdir(parents=True)
    (folder / "pipelines" / "demo.yaml").write_text(PIPELINE)
    (folder / "cluster" / "quota.yaml").write_text(QUOTA)
    monkeypatch.chdir(folder)
    return folder


COMPILE = ("compile", "pipelines/demo.yaml", "--target", "airflow", "--namespace", "team", "-o", "argo_templates/")
FILE = "argo_templates/demo.py"


@pytest.mark.parametrize("leads_to", ["../../home/config.yaml", "/proc/self/environ", "../.git/config", "/etc/passwd"])
@pytest.mark.parametrize("words", [(), ("--format", "json")], ids=["text", "json"])
def test_what_a_committed_link_leads_to_is_not_shown_by_check(
    gpuflow: Gpuflow, repository: Path, leads_to: str, words: tuple[str, ...]
) -> None:
    (repository / ".git" / "config").write_text(TOKEN)
    (repository / FILE).symlink_to(leads_to)
    answer = gpuflow(*COMPILE, "--check", *words)
    assert answer.code == 2
    assert "GF909" in answer.err and FILE in answer.err and "is a link" in answer.err
    shown = answer.out + answer.err
    assert TOKEN not in shown and "PATH=" not in shown and "root:" not in shown


def test_nor_when_the_folder_itself_or_one_file_that_is_named_is_the_link(gpuflow: Gpuflow, repository: Path) -> None:
    (repository.parent / "home" / "demo.py").write_text(TOKEN)
    (repository / "argo_templates").rmdir()
    (repository / "argo_templates").symlink_to("../home")
    (repository / "one.py").symlink_to("../home/demo.py")
    for place in ("argo_templates/", "argo_templates", "one.py"):
        for words in (("--check",), ()):
            answer = gpuflow(*COMPILE[:-1], place, *words)
            assert (answer.code, "GF909" in answer.err) == (2, True)
            assert TOKEN not in answer.out + answer.err
    assert (repository.parent / "home" / "demo.py").read_text() == TOKEN


def test_nothing_is_written_through_a_link_and_nothing_else_either(gpuflow: Gpuflow, repository: Path) -> None:
    target = repository.parent / "home" / ".profile"
    (repository / FILE).symlink_to(target)
    (repository / "pipelines" / "second.yaml").write_text(PIPELINE.replace("demo", "second"))
    answer = gpuflow("compile", "pipelines/second.yaml", *COMPILE[1:])
    assert (answer.code, "GF909" in answer.err) == (2, True)
    assert not target.exists()
    assert [path.name for path in (repository / "argo_templates").iterdir()] == ["demo.py"]


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_at_once(
    gpuflow: Gpuflow, repository: Path, kind: str
) -> None:
    os.mkfifo(repository / FILE) if kind == "pipe" else (repository / FILE).mkdir()
    answer = gpuflow(*COMPILE, "--check")
    assert (answer.code, "GF909" in answer.err, "not an ordinary file" in answer.err) == (2, True, True)


def test_who_wants_links_says_so(gpuflow: Gpuflow, repository: Path) -> None:
    target = repository.parent / "home" / "demo.py"
    (repository / FILE).symlink_to(target)
    assert gpuflow(*COMPILE, "--follow-links").code == 0
    assert target.read_text().startswith("# Made by gpuflow") and (repository / FILE).is_symlink()
    assert gpuflow(*COMPILE, "--check", "--follow-links").code == 0
    target.write_text("old\n")
    answer = gpuflow(*COMPILE, "--check", "--follow-links")
    assert (answer.code, "-old" in answer.out) == (1, True)


def test_a_link_within_the_repository_that_is_named_is_followed(gpuflow: Gpuflow, repository: Path) -> None:
    (repository / "latest.py").symlink_to(FILE)
    words = (*COMPILE[:-1], "latest.py")
    assert gpuflow(*words).code == 0
    assert (repository / "latest.py").is_symlink() and (repository / FILE).is_file()
    assert gpuflow(*words, "--check").code == 0


@pytest.mark.parametrize("leads_to", [".git/config", ".git/hooks/pre-commit", ".env"])
def test_a_named_link_within_the_repository_shows_and_changes_nothing_of_others(
    gpuflow: Gpuflow, repository: Path, leads_to: str
) -> None:
    """A checkout keeps its token in .git/config, and what stands in .git/hooks is run."""
    target = repository / leads_to
    target.parent.mkdir(exist_ok=True)
    target.write_text(TOKEN)
    (repository / "one.py").symlink_to(leads_to)
    words = (*COMPILE[:-1], "one.py")
    answer = gpuflow(*words, "--check")
    assert answer.code == 2 and "GF909" in answer.err
    assert TOKEN not in answer.out + answer.err
    if ".git" in leads_to:
        assert "GF909" in gpuflow(*words).err
        assert target.read_text() == TOKEN


@pytest.mark.parametrize("place", ["pipelines/linked.yaml", "cluster/linked.yaml"])
def test_nothing_of_the_repositorys_own_folder_is_read(gpuflow: Gpuflow, repository: Path, place: str) -> None:
    (repository / ".git" / "config").write_text(f"kind: {TOKEN}\n")
    (repository / place).symlink_to("../.git/config")
    words = ("check", "pipelines/demo.yaml", "--namespace", "team", "--cluster", "cluster")
    answer = gpuflow("validate", place) if place.startswith("pipelines") else gpuflow(*words)
    assert answer.code == 2 and "GF140" in answer.err and TOKEN not in answer.err + answer.out


def test_a_compiled_file_that_is_far_too_large_is_stale_and_not_shown(
    gpuflow: Gpuflow, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuflow.cli.output.MAX_BYTES", 100)
    (repository / FILE).write_text(TOKEN * 10)
    answer = gpuflow(*COMPILE, "--check")
    assert (answer.code, TOKEN in answer.out, "is not shown" in answer.out) == (1, False, True)


@pytest.mark.parametrize("place", ["pipeline.yaml", ".github"])
def test_init_does_not_write_through_a_link(gpuflow: Gpuflow, repository: Path, place: str) -> None:
    (repository / place).symlink_to("../home/" + ("new.yaml" if place.endswith("yaml") else ""))
    answer = gpuflow("init", ".", "--force")
    assert (answer.code, "GF909" in answer.err) == (2, True)
    assert [path.name for path in (repository.parent / "home").rglob("*")] == ["config.yaml"]


# Reading.


def _included(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "pipelines" / "outer.yaml").write_text(OUTER % name)
    return ("validate", "pipelines/outer.yaml")


def _extended(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "pipelines" / "site.yaml").write_text(SITE % name)
    return ("validate", "pipelines/demo.yaml", "--site", "pipelines/site.yaml")


def _linked(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "pipelines" / "linked.yaml").symlink_to(name)
    return ("validate", "pipelines/linked.yaml")


def _linked_site(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "pipelines" / "site.yaml").symlink_to(name)
    return ("validate", "pipelines/demo.yaml", "--site", "pipelines/site.yaml")


def _linked_manifest(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "cluster" / "more.yaml").symlink_to(name)
    return ("check", "pipelines/demo.yaml", "--cluster", "cluster/", "--namespace", "team")


def _compared(repository: Path, name: str) -> tuple[str, ...]:
    (repository / "pipelines" / "old.yaml").symlink_to(name)
    words = ("check", "pipelines/demo.yaml", "--cluster", "cluster/", "--namespace", "team")
    return (*words, "--compare", "pipelines/old.yaml")


WAYS: list[Callable[[Path, str], tuple[str, ...]]] = [
    _included,
    _extended,
    _linked,
    _linked_site,
    _linked_manifest,
    _compared,
]


@pytest.mark.parametrize("name", ["../../home/config.yaml", "../../../../../../../../../../proc/self/environ"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_a_file_outside_the_repository_is_not_read(
    gpuflow: Gpuflow, repository: Path, way: Callable[[Path, str], tuple[str, ...]], name: str
) -> None:
    answer = gpuflow(*way(repository, name))
    assert answer.code == 2
    # --compare of what is no ordinary file takes it for a revision.
    assert "GF140" in answer.err or (way is _compared and "GF908" in answer.err)
    for word in (TOKEN, "users", "PATH="):
        assert word not in answer.out + answer.err


def test_an_absolute_base_of_a_site_is_a_file_outside_too(gpuflow: Gpuflow, repository: Path) -> None:
    base = repository.parent / "home" / "base.yaml"
    base.write_text(SITE % "nvidia")
    answer = gpuflow(*_extended(repository, str(base)))
    assert (answer.code, "GF140" in answer.err, "site.yaml:4:10" in answer.err) == (2, True, True)
    assert gpuflow("validate", "pipelines/demo.yaml", "--site", base).code == 0  # who names it may


def test_includes_and_bases_within_the_repository_are_read_from_any_folder(
    gpuflow: Gpuflow, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "shared").mkdir()
    (repository / "shared" / "inner.yaml").write_text(PIPELINE)
    (repository / "shared" / "site.yaml").write_text(SITE % "nvidia")
    assert gpuflow(*_included(repository, "../shared/inner.yaml")).code == 0
    assert gpuflow(*_extended(repository, "../shared/site.yaml")).code == 0
    monkeypatch.chdir(repository / "pipelines")
    assert gpuflow("validate", "outer.yaml", "--site", "site.yaml").code == 0


def test_a_folder_behind_a_link_out_of_the_repository_is_not_walked(gpuflow: Gpuflow, repository: Path) -> None:
    (repository / "cluster" / "all").symlink_to("/")
    answer = gpuflow("check", "pipelines/demo.yaml", "--cluster", "cluster/", "--namespace", "team")
    assert (answer.code, answer.err.count("GF140")) == (2, 1)


def test_another_repository_behind_a_link_does_not_make_it_ours(repository: Path) -> None:
    (repository.parent / "home" / "other" / ".git").mkdir(parents=True)
    (repository / "linked").symlink_to("../home")
    (repository / "direct").symlink_to("../home/other")
    for path in ("linked/other/p.yaml", "direct/p.yaml"):
        assert files.repository_above(Path(path)) == repository


def test_a_repository_that_is_itself_named_by_a_link_bounds_its_files(gpuflow: Gpuflow, repository: Path) -> None:
    """As git-sync has it: `current` leads to the checkout, whose own links may lead anywhere."""
    (repository.parent / "current").symlink_to(repository)
    (repository / "pipelines" / "linked.yaml").symlink_to("../../home/config.yaml")
    (repository / "pipelines" / "outer.yaml").write_text(OUTER % "../../home/config.yaml")
    (repository / "argo_templates").rmdir()
    (repository / "argo_templates").symlink_to("../home")
    for name in ("linked", "outer"):
        answer = gpuflow("validate", f"../current/pipelines/{name}.yaml")
        assert answer.code == 2 and "GF140" in answer.err
    words = ("../current/pipelines/demo.yaml", *COMPILE[2:-1], "../current/argo_templates/")
    assert "GF909" in gpuflow("compile", *words).err
    assert gpuflow("validate", "../current/pipelines/demo.yaml").code == 0


LIMIT = 1 << 30


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


@pytest.mark.parametrize("kind", ["pipe", "zero", "endless file"])
@pytest.mark.parametrize("way", ["included", "extended", "named"])
def test_a_pipe_or_a_device_neither_hangs_nor_fills_the_memory(tmp_path: Path, kind: str, way: str) -> None:
    """Without any repository: nothing bounds where a path may lead, and it must be an ordinary file all the same."""
    odd = tmp_path / "odd.yaml"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "zero":
        odd.symlink_to("/dev/zero")
    else:
        with odd.open("wb") as stream:
            stream.truncate(1 << 40)  # a file of holes
    (tmp_path / "outer.yaml").write_text(OUTER % "odd.yaml")
    (tmp_path / "site.yaml").write_text(SITE % "odd.yaml")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    words = {
        "included": ["outer.yaml"],
        "extended": ["p.yaml", "--site", "site.yaml"],
        "named": ["odd.yaml"],
    }[way]
    done = subprocess.run(
        [sys.executable, "-m", "gpuflow.cli.main", "validate", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=_bounded,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert any(code in done.stderr for code in ("GF100", "GF102", "GF140"))


def test_a_stream_that_somebody_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PIPELINE)
    program = f"{sys.executable} -m gpuflow.cli.main validate"
    for line in (f"{program} /dev/stdin < p.yaml", f"cat p.yaml | {program} /dev/stdin", f"{program} <(cat p.yaml)"):
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


# Python files.


@pytest.mark.parametrize("command", ["validate", "show", "demand", "compile", "check"])
def test_a_python_pipeline_is_refused_unrun_where_python_is_not_allowed(
    gpuflow: Gpuflow, repository: Path, command: str
) -> None:
    (repository / "p.py").write_text("open('taken', 'w').close()\n")
    more = {"compile": ["--target", "airflow"], "check": ["--cluster", "cluster/", "--namespace", "team"]}
    answer = gpuflow(command, "p.py", "--no-allow-python", *more.get(command, []))
    assert (answer.code, "GF196" in answer.err, (repository / "taken").exists()) == (2, True, False)


def test_nor_is_one_to_compare_with(gpuflow: Gpuflow, repository: Path) -> None:
    (repository / "p.py").write_text("open('taken', 'w').close()\n")
    words = ("check", "pipelines/demo.yaml", "--cluster", "cluster/", "--namespace", "team", "--compare", "p.py")
    answer = gpuflow(*words, "--no-allow-python")
    assert (answer.code, "GF196" in answer.err, (repository / "taken").exists()) == (2, True, False)


def test_files_of_the_tree_are_not_taken_for_a_git_repository(gpuflow: Gpuflow, repository: Path) -> None:
    """Where .git is empty, as some images have it, Git would read HEAD, objects/ and config of the tree. A config that
    says where to fetch what is missing names a program to do so."""
    taken = repository.parent / "taken"
    bare = ("git", f"--git-dir={repository}")
    subprocess.run(["git", "init", "--quiet", "--bare", repository / "remote"], check=True)
    subprocess.run(["git", "init", "--quiet", "--bare", "../made"], check=True)
    for made in (repository.parent / "made").iterdir():
        made.rename(repository / made.name)
    subprocess.run([*bare, "config", "core.repositoryformatversion", "1"], check=True)
    for key, value in {
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": str(repository / "remote"),
        "remote.origin.uploadpack": f"touch {taken}; git-upload-pack",
    }.items():
        subprocess.run([*bare, "config", key, value], check=True)
    answer = gpuflow(
        "check", "pipelines/demo.yaml", "--namespace", "team", "--cluster", "cluster", "--compare", f"git:{'1' * 40}"
    )
    assert answer.code == 2 and "GF908" in answer.err
    assert not taken.exists()


def test_a_file_with_the_name_of_a_revision_does_not_stand_in_for_it(gpuflow: Gpuflow, repository: Path) -> None:
    (repository / ".git").rmdir()
    for words in (["init", "--quiet"], ["add", "pipelines"], ["commit", "--quiet", "--message", "x"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *who, *words], cwd=repository, check=True)
    (repository / "HEAD").write_text("not a pipeline")
    words = ("check", "pipelines/demo.yaml", "--cluster", "cluster/", "--namespace", "team", "--compare")
    assert gpuflow(*words, "HEAD").code == 2
    assert gpuflow(*words, "git:HEAD").code == 0


# The class stays closed.

OWN = {
    "core/files.py": "the door itself",
    "cli/output.py": "writes what was compiled, after refuse_links",
    "cli/main.py": "opens the null device",
    "cli/init.py": "templates that come with gpuflow, and what pip wrote down beside it",
    "cli/demo.py": "the example that comes with gpuflow",
    "demo/moons.py": "the program of the demo's training, which reads and writes what its step has",
    "cli/explain.py": "the source of gpuflow, for the place of a rule",
    "catalog/catalog.py": "data that comes with gpuflow",
    "catalog/offers.py": "data that comes with gpuflow",
    "cluster/api_server.py": "the kubeconfig of whoever calls, which the client has opened before",
    "airflow/function_runner.py": "runs in the container of a function, and writes its output there",
    "airflow/functions.py": "the program that comes with gpuflow and is written into the pod",
    "targets/airflow/standalone.py": "functions that come with gpuflow and are written into the DAG",
    "spec/loading.py": "runs a Python pipeline after reading it by the door",
    "formats/schemas.py": "reads the schemas that come with gpuflow",
    "core/alert.py": "opens web addresses, and no files",
    "targets/kubeflow/exit_steps.py": "the program that comes with gpuflow and is written into the pipeline",
    "targets/kubeflow/ask_argo.py": "runs in a container of the run: the pod's own token, and the file for its answer",
    "readers/python/inside_engine.py": "runs in a process of its own, beside the user's file, without credentials",
    "readers/python/programs.py": "the log and the answer of that process, in a folder made for it",
    "cli/logs.py": "logs in the folder of a run on this machine",
    "runs/kubeflow.py": "asks over HTTP; the token and the settings of kfp's client, which kfp names",
    "runs/airflow_api.py": "opens web addresses, and no files",
    "runs/airflow_dags.py": "the compiled file in Airflow's own DAGs folder",
    "local/approvals.py": "an answer in the folder of the run",
    "local/attempt.py": "what an attempt left in the folder of the run",
    "local/containers.py": "the supervisor, which is put into the folder of runs for containers",
    "local/machine.py": "what Linux says of this machine, in /proc and /sys",
    "local/record.py": "the folder of the run",
    "local/resume.py": "the folder of the run",
}
OPENERS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "run_path", "fdopen", "mkstemp", "fromfile"}
BY_NAME = {"read_text", "read_bytes"}
"""Functions of ours that have the name of a method: only a method of something is an opener."""


def opening_calls(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in OPENERS and (isinstance(called, ast.Attribute) or name not in BY_NAME):
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


def test_no_file_is_opened_beside_the_door() -> None:
    package = ROOT / "gpuflow"
    found = {
        path.relative_to(package).as_posix(): list(opening_calls(path))
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] != "runtime"
    }
    assert [line for name, lines in found.items() if name not in OWN for line in lines] == []
    assert [name for name in OWN if not found[name]] == []  # a door that is gone is not kept in the list


@pytest.fixture
def plain(repository: Path) -> Path:
    """The same folder as an archive of it has it: without Git."""
    (repository / ".git").rmdir()
    return repository


OUTSIDE = [
    ("normalize", "l.yaml"),
    ("import", "l.yaml"),
    ("validate", "l.yaml"),
    ("show", "l.yaml"),
    ("demand", "l.yaml"),
    ("check", "pipelines/demo.yaml", "--cluster", "l.yaml", "--namespace", "team"),
    ("check", "pipelines/demo.yaml", "--cluster", "cluster", "--site", "l.yaml"),
]


@pytest.mark.parametrize("words", OUTSIDE, ids=" ".join)
@pytest.mark.parametrize("absolute", [False, True])
def test_without_git_a_link_does_not_lead_out_of_the_current_folder(
    gpuflow: Gpuflow, plain: Path, words: tuple[str, ...], absolute: bool
) -> None:
    (plain / "l.yaml").symlink_to("../home/config.yaml")
    answer = gpuflow(*(str(plain / word) if word == "l.yaml" and absolute else word for word in words))
    assert answer.code == 2 and "GF140" in answer.err
    assert TOKEN not in answer.out + answer.err


def test_without_git_nothing_is_written_through_a_link(gpuflow: Gpuflow, plain: Path) -> None:
    (plain / "l.py").symlink_to("../home/config.yaml")
    (plain / "out").symlink_to("../home")
    for place in ("l.py", "out/", "out/x.py"):
        answer = gpuflow(*COMPILE[:-1], place)
        assert answer.code == 2 and "GF909" in answer.err
    assert [each.name for each in (plain.parent / "home").iterdir()] == ["config.yaml"]
    assert (plain.parent / "home" / "config.yaml").read_text() == SECRET


def test_without_git_what_a_document_names_stays_in_the_current_folder(gpuflow: Gpuflow, plain: Path) -> None:
    (plain / "site.yaml").write_text(SITE % "../home/config.yaml")
    (plain / "outer.yaml").write_text(OUTER % "../home/config.yaml")
    for words in (("validate", "outer.yaml"), ("validate", "pipelines/demo.yaml", "--site", "site.yaml")):
        answer = gpuflow(*words)
        assert answer.code == 2 and "GF140" in answer.err and TOKEN not in answer.err


def test_without_git_files_that_are_named_are_read_wherever_they_are(
    gpuflow: Gpuflow, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an absolute path, by `..`, through a link of the current folder, and as a ConfigMap is mounted."""
    base = plain / "sites"
    base.mkdir()
    (base / "base.yaml").write_text(SITE % "nvidia")
    (plain / "pipelines" / "site.yaml").write_text(SITE % "../sites/base.yaml")
    (plain / "pipelines" / "same.yaml").symlink_to("demo.yaml")
    mounted = plain / "mounted"
    (mounted / "..2026").mkdir(parents=True)
    (mounted / "..2026" / "quota.yaml").write_text(QUOTA)
    (mounted / "..data").symlink_to("..2026")
    (mounted / "quota.yaml").symlink_to("..data/quota.yaml")
    (plain.parent / "elsewhere").mkdir()
    for here in (plain, plain.parent / "elsewhere"):
        monkeypatch.chdir(here)
        for root in (str(plain), os.path.relpath(plain)):
            for file in ("demo.yaml", "same.yaml"):
                words = ("check", f"{root}/pipelines/{file}", "--site", f"{root}/pipelines/site.yaml")
                answer = gpuflow(*words, "--cluster", f"{root}/mounted")
                assert answer.code == 0, answer.err
        assert gpuflow("compile", plain / "pipelines/demo.yaml", *COMPILE[2:-1], plain / "x.py").code == 0
