"""The mounted supervisor: same bytes, two parts, old Pythons can read it, no gpuflow needed, and says what it lacks."""

from __future__ import annotations

import ast
import hashlib
import json
import marshal
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuflow.core.emit import emit
from gpuflow.runtime import bundle
from tests.runtime import harness
from tests.runtime.harness import ROOT

BARE = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harness.mount(tmp_path_factory.mktemp("mounts") / "mount").parent


OUTER = re.compile(r"^MODULES = {\n.*?^}\n", re.MULTILINE | re.DOTALL)
"""The index of the modules."""
PART_MOST = 450_000
"""Two such parts are below the 1,048,576 bytes that Kubernetes takes in one ConfigMap, with room for what is beside."""


def test_the_same_bytes_every_time_and_each_part_below_its_limit_so_that_both_fit_into_one_config_map() -> None:
    first = bundle.files()
    bundle.files.cache_clear()
    assert bundle.files() == first
    sizes = {name: len(text.encode()) for name, text in first.items()}
    assert sorted(sizes) == ["gangs-and-training.txt", "gpuflow-run", "gpuflow_runtime.py", "supervisor.txt"]
    for part in (bundle.EVERYDAY, bundle.SECOND):
        assert sizes[part] < PART_MOST, f"{part} has {sizes[part]:,} bytes: docs/design/supervisor.md says what to do"
    assert sum(sizes.values()) < 2 * PART_MOST + 20_000 < 1 << 20


# -- the two parts


def index() -> dict[str, tuple[str, int, int]]:
    """The modules with the part that each is in, its first byte there and its length."""
    found = OUTER.search(bundle.files()[bundle.FILE])
    assert found is not None
    table: dict[str, tuple[str, int, int]] = ast.literal_eval(found[0].partition("=")[2].strip())
    return table


def test_a_part_is_readable_and_holds_each_module_once_below_its_name() -> None:
    parts = {name: text.encode() for name, text in bundle.files().items()}
    printed = emit(bundle.config_map())
    for part in (bundle.EVERYDAY, bundle.SECOND):
        assert f"\n  {part}: |\n    # gpuflow" in printed
    for name, (part, start, size) in index().items():
        assert parts[part][:start].endswith(f"# {name}\n".encode())
        if name != "gpuflow":
            path = ROOT / name.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            text = bundle.without_comments(path.read_text(encoding="utf-8"))
            assert parts[part][start : start + size].decode() == text, name
    paths = [path for path in (ROOT / "gpuflow" / "runtime").rglob("*.py") if path.name != "bundle.py"]
    assert len(index()) == len(paths) + 1


def test_the_second_part_is_gangs_and_what_training_code_imports_and_loads_only_when_asked_for() -> None:
    table = index()
    second = {name for name, (part, _, _) in table.items() if part == bundle.SECOND}
    others = {name.removeprefix("gpuflow.runtime.") for name in second if ".gangs" not in name}
    frameworks = {"dcp", "elastic", "huggingface", "lightning", "pytorch"}
    assert others == {"checkpoints.training", "checkpoints.torch_state"} | frameworks
    assert all(".gangs" not in name or name in second for name in table)
    text = bundle.files()[bundle.EVERYDAY].encode()
    for name in sorted(set(table) - second):
        _, start, size = table[name]
        for node in ast.parse(text[start : start + size]).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names] + [str(node.module)]
            assert not second & set(names), (name, names)


def test_a_step_without_a_gang_runs_from_the_first_part_alone(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount")
    (program.parent / bundle.SECOND).unlink()
    words = [sys.executable, "-S", "-E", str(program)]
    kept = ["--checkpoint-dir", "c", "--store", "s", "--run-id", "r", "--output", "o"]
    script = (
        f'echo 1 > "$GPUFLOW_OUTPUTS/o"; echo 1 > c/.one; mv c/.one c/one; {" ".join(words)} probe --checkpoint-dir c'
    )
    for more in (["digest", "mount/gpuflow-run"], ["--version"], [*kept, "--", "sh", "-c", script]):
        done = subprocess.run([*words, *more], cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert list((tmp_path / "s").rglob("manifest*"))


def test_a_program_without_the_texts_beside_it_says_one_sentence_and_ends_for_good(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount")
    (program.parent / bundle.EVERYDAY).unlink()
    log = tmp_path / "log"
    log.touch()
    words = [sys.executable, "-S", str(program), "--termination-log", str(log), "--", "true"]
    done = subprocess.run(words, cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=120)
    said = f"gpuflow-run: supervisor.txt is not in {program.parent}: mount the whole ConfigMap, not one of its files\n"
    assert (done.returncode, done.stdout, done.stderr, log.read_text()) == (79, "", said, said)


# -- compiled code that is kept

COUNTED = """
import os, sys
def hook(event, arguments):
    if event == "compile" and str(arguments[1]).startswith("<gpuflow-run>/"):
        os.write(2, b"compiled\\n")
sys.addaudithook(hook)
"""
UNITS = "gpuflow.runtime.base.units"
"""A module that each start loads."""


def compiled(program: Path, *options: str) -> int:
    """How many modules a start compiles."""
    (program.parent / "sitecustomize.py").write_text(COUNTED)
    environ = {**BARE, "PYTHONPATH": str(program.parent)}
    words = [sys.executable, *options, str(program), "--", "echo", "ran"]
    done = subprocess.run(words, cwd=program.parent, env=environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
    return done.stderr.count("compiled\n")


def kept_folder(program: Path) -> Path:
    (found,) = (program.parent / "tmp").iterdir()
    return found


def test_compiled_code_is_kept_on_the_containers_own_disk() -> None:
    assert bundle.files()[bundle.FILE].count(harness.OWN_DISK) == 1


def test_a_second_start_in_the_same_container_compiles_nothing(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount")
    assert compiled(program) > 20
    assert compiled(program) == 0
    folder = kept_folder(program)
    assert folder.name.startswith(f".gpuflow-run-{os.geteuid()}-") and sys.implementation.cache_tag in folder.name
    assert folder.stat().st_mode == 0o40700
    assert {path.stat().st_mode for path in folder.iterdir()} == {0o100600}
    assert {path.name for path in folder.iterdir()} <= set(index())
    assert compiled(program, "-O") > 20, "code without its assertions is other code"


def plant(folder: Path) -> None:
    """Code of another, whole and in the right place."""
    data = marshal.dumps(compile("import os; os.write(1, b'planted\\n'); os._exit(0)", "x", "exec"))
    (folder / UNITS).write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)


def as_link(path: Path) -> None:
    path.rename(path.parent.parent / "other")
    path.symlink_to(path.parent.parent / "other")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


ODD: dict[str, Callable[[Path], object]] = {
    "others may look into the folder": lambda folder: folder.chmod(0o755),
    "others may write to the folder": lambda folder: folder.chmod(0o770),
    "the folder is a link": as_link,
    "the folder is another user's": lambda folder: os.chown(folder, 12345, -1),
    "others may read the file": lambda folder: (folder / UNITS).chmod(0o644),
    "the file is a link": lambda folder: as_link(folder / UNITS),
    "the file is another user's": lambda folder: os.chown(folder / UNITS, 12345, -1),
    "the file is a pipe": lambda folder: as_pipe(folder / UNITS),
    "the file is cut": lambda folder: os.truncate(folder / UNITS, 40),
    "the file is empty": lambda folder: os.truncate(folder / UNITS, 0),
    "a bit is flipped": lambda folder: flip(folder / UNITS),
}


@pytest.mark.parametrize("odd", ODD)
def test_compiled_code_is_not_trusted_when_anything_about_it_is_odd(odd: str, tmp_path: Path) -> None:
    if "another user" in odd and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    program = harness.mount(tmp_path / "mount")
    compiled(program)
    plant(kept_folder(program))
    words = [sys.executable, "-S", str(program), "--", "true"]
    assert subprocess.run(words, env=BARE, capture_output=True, timeout=120).stdout == b"planted\n", "it must matter"
    ODD[odd](kept_folder(program))
    assert compiled(program) >= 1


def test_nothing_is_kept_on_a_volume_where_another_pod_of_the_same_user_could_write(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount", root="/proc")
    assert compiled(program) == compiled(program) > 20
    assert not list((tmp_path / "mount" / "tmp").iterdir())


@pytest.mark.parametrize("place", ["/dev/null", "/nonexistent"])
def test_where_nothing_can_be_kept_a_start_is_as_before(place: str, tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount", place=place)
    assert compiled(program) == compiled(program) > 20


def test_a_disk_that_is_full_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount")
    words = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", sys.executable, "-S", str(program), "--", "true"]
    done = subprocess.run(words, cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in kept_folder(program).iterdir()}
    assert names and names <= set(index()), "small modules fit"
    assert "gpuflow.runtime.supervise.supervisor" not in names
    assert compiled(program) > 0 == compiled(program)


# -- a Python that is too old

OLD = ("2.7", "3.5", "3.6", "3.7")


def test_old_pythons_can_read_the_outer_file() -> None:
    """No f-string, annotation, walrus, keyword-only argument, `nonlocal`, `async` or `print` in what is read first."""
    text = OUTER.sub("MODULES = {}\n", bundle.files()[bundle.FILE])
    assert len(text) < 7_000
    for source in (text, bundle.IMPORTABLE):
        source.encode("ascii")
        for node in ast.walk(ast.parse(source, feature_version=(3, 4))):
            kinds = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef, ast.Await)
            assert not isinstance(node, kinds), ast.dump(node)
            if isinstance(node, ast.arguments):
                assert not (node.kwonlyargs or node.posonlyargs)
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id == "print")
            if isinstance(node, ast.Raise):
                assert node.cause is None


@pytest.mark.parametrize("version", OLD)
def test_an_old_python_says_one_sentence_and_ends_for_good(version: str, mount: Path, tmp_path: Path) -> None:
    """Here by a made-up number; with the real one where the machine has it."""
    log = tmp_path / "log"
    log.touch()
    number = tuple(map(int, version.split(".")))
    program = f"import runpy, sys; sys.version_info = {number} + (0, 'final', 0); sys.argv = sys.argv[1:]; "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-S", "-c", program, str(mount / "gpuflow-run"), f"--termination-log={log}", "--", "true"]
    runs = [words]
    real = _interpreter(version)
    if real is not None:
        runs.append([real, str(mount / "gpuflow-run"), "--termination-log", str(log), "--", "true"])
    for each in runs:
        log.write_text("")
        done = subprocess.run(each, cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (79, ""), done.stderr
        assert re.fullmatch(rf"gpuflow-run: \S+ is Python {version}, and 3.8 or newer is needed: .*\n", done.stderr)
        assert log.read_text() == done.stderr


@pytest.mark.parametrize("version", OLD)
def test_an_old_python_that_imports_it_gets_an_import_error(version: str, mount: Path, tmp_path: Path) -> None:
    real = _interpreter(version)
    if real is None:
        pytest.skip(f"there is no Python {version} here")
    environ = {**BARE, "PYTHONPATH": str(mount), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [real, "-c", "import gpuflow_runtime"]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert f"ImportError: gpuflow_runtime needs Python 3.8 or newer, and this is {version}" in done.stderr


def _interpreter(version: str) -> str | None:
    """A Python of that version that runs; a stand-in that only says it is not installed is none."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, timeout=120).returncode:
        return None
    return found


def test_python_3_8_can_read_every_module() -> None:
    for path in sorted((ROOT / "gpuflow" / "runtime").rglob("*.py")):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    ast.parse(bundle.files()[bundle.FILE], feature_version=(3, 8))


def test_python_3_8_can_import_every_module() -> None:
    """There `dict[str, int]` is an error wherever it is evaluated: anywhere but in annotations, which never are."""
    for path in sorted((ROOT / "gpuflow" / "runtime").rglob("*.py")):
        found = _Evaluated()
        found.visit(ast.parse(path.read_text(encoding="utf-8")))
        assert not found.lines, f"{path.name}: lines {found.lines}"


class _Evaluated(ast.NodeVisitor):
    """Builtin types with brackets, where Python 3.8 would look at them."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation, which is not evaluated."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for each in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(each)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name in ("dict", "list", "tuple", "set", "frozenset", "type"):
            self.lines.append(node.lineno)
        self.generic_visit(node)


def test_the_runtime_imports_nothing_of_the_rest_and_no_package() -> None:
    allowed = set(sys.stdlib_module_names) | {"gpuflow"}
    lazy = {"fsspec_store": {"fsspec"}, "pytorch": {"torch", "numpy"}, "elastic": {"torch"}}
    lazy |= {"s3_client": {"fsspec", "botocore"}}  # what the driver has loaded by then
    lazy |= {"kube_client": {"yaml"}}  # where the image has it; manifests in JSON need none
    lazy |= {"torch_state": {"torch", "numpy"}, "dcp": {"torch"}}
    lazy |= {"lightning": {"lightning", "pytorch_lightning"}, "huggingface": {"transformers"}}
    for path in sorted((ROOT / "gpuflow" / "runtime").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert name.split(".")[0] in allowed | lazy.get(path.stem, set()), (path.name, name)
                assert not name.startswith("gpuflow.") or name.startswith("gpuflow.runtime"), (path.name, name)


def test_it_runs_a_command_where_gpuflow_is_not_installed(mount: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-S", "-E", str(mount / "gpuflow-run"), "--state", "state", "--run-id", "r"]
    done = subprocess.run([*words, "--", "sh", "-c", "exit 9"], cwd=tmp_path, env=BARE, capture_output=True, text=True)
    assert done.returncode == 9, done.stderr
    assert "attempt 1 failed (retryable)" in done.stderr
    assert (tmp_path / "state" / "default" / "r" / "default" / "attempts" / "000001.json").exists()


def test_a_training_script_can_import_it_from_the_mount(mount: Path, tmp_path: Path) -> None:
    code = "from gpuflow_runtime import checkpointing\nwith checkpointing('c') as c: print(c.resume_from)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env={**BARE, "PYTHONPATH": str(mount)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


def test_the_config_map_is_ready_to_apply() -> None:
    manifest = bundle.config_map("gpuflow-runtime", "ml")
    assert (manifest["apiVersion"], manifest["kind"]) == ("v1", "ConfigMap")
    assert manifest["metadata"]["namespace"] == "ml"
    assert manifest["data"] == bundle.files()


def test_the_config_map_cannot_be_changed_and_its_name_says_what_it_holds() -> None:
    manifest = bundle.config_map("gpuflow-runtime")
    text = json.dumps(manifest["data"], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert manifest["immutable"] is True
    assert manifest["metadata"]["name"] == f"gpuflow-runtime-{digest[:8]}"
    assert manifest["metadata"]["annotations"] == {"gpuflow.dev/runtime-digest": f"sha256:{digest}"}


def test_lines_are_cut_and_never_written_anew_so_that_every_python_makes_the_same_bytes() -> None:
    """`ast.unparse` writes quotes and brackets in another way in each version."""
    for path in sorted((ROOT / "gpuflow" / "runtime").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        text = bundle.without_comments(source)
        kept = [line.lstrip() for line in source.split("\n")]
        for line in text.rstrip("\n").split("\n"):
            assert line.strip() == "pass" or any(each.startswith(line.lstrip()) for each in kept), (path.name, line)
        assert ast.dump(ast.parse(text)) == ast.dump(bare(ast.parse(source))), path.name


def bare(tree: ast.AST) -> ast.AST:
    """Without texts that stand alone."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [part for part in body if not (isinstance(part, ast.Expr) and is_text(part.value))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]  # only nodes with a body come here
    return tree


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('x = "# no" # yes\n', 'x = "# no"\n'),
        ('x = f"{1}# no"  # yes\n', 'x = f"{1}# no"\n'),
        ('x = """a\n\n# no\n"""  # yes\n', 'x = """a\n\n# no\n"""\n'),
        ('def f():\n    """Doc.\n\n    # more\n    """\n\n\ny = 1\n', "def f():\n pass\ny = 1\n"),
        (
            'def f():\n    if x:\n        return """\n    a\n        """\n',
            'def f():\n if x:\n  return """\n    a\n        """\n',
        ),
        ('x = "ä"  # ö "#"\n# all\n', 'x = "ä"\n'),
    ],
)
def test_what_looks_like_a_comment_inside_a_text_stays(source: str, text: str) -> None:
    assert bundle.without_comments(source) == text


def test_a_wrapped_command_runs_from_the_mount(mount: Path, tmp_path: Path) -> None:
    words = bundle.wrap(
        ["sh", "-c", 'echo "$0 $GPUFLOW_ATTEMPT"', "$HOME"],
        {},
        delivery="config-map",
        mount=str(mount),
        python=sys.executable,
    )
    done = subprocess.run(words, cwd=tmp_path, env=BARE, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "$HOME 1\n"), done.stderr


def test_an_image_without_python_ends_at_once_with_the_final_code_and_one_sentence(tmp_path: Path) -> None:
    words = bundle.wrap(["train"], {"keep": 2}, delivery="config-map", python="python3")
    (tmp_path / "sh").symlink_to("/bin/sh")
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, executable="/bin/sh", capture_output=True, text=True)
    assert done.returncode == 79
    assert done.stderr.startswith("gpuflow-run: this image has no python3; install Python")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_shell_text_holds_nothing_that_kubernetes_or_argo_would_read() -> None:
    for mark in ("$(", "$$", "{{"):
        assert mark not in bundle.NEEDS_PYTHON


def test_every_page_applies_the_config_map_on_the_servers_side() -> None:
    """A plain `kubectl apply` keeps a copy of the object in an annotation, and this one is larger than that may be."""
    assert len(json.dumps(bundle.config_map())) > 256 << 10, "a plain apply works again: say so on the pages"
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("gpuflow/cli/*.py")]
    words = re.compile(r"(?:site runtime [^\n`]*\| *|)kubectl (?:apply|diff) [^\n`]*")
    found = [each[0] for page in pages for each in words.finditer(page.read_text(encoding="utf-8"))]
    meant = [line for line in found if "site runtime" in line or "runtime.yaml" in line]
    assert len(meant) >= 5
    assert [line for line in meant if "--server-side" not in line] == []
