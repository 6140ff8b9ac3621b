"""Absolute paths of a step as folders of the run: which there are, and how texts are rewritten with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow import Pipeline, Site
from gpuflow.core.errors import GpuflowError
from gpuflow.local.paths import PathMap, paths_of
from gpuflow.plan import planned_step

MOUNTS = ("/data", "/data/cache", "/ckpt", "/gpuflow/outputs", "/in/model", "/d")
HERE = {path: Path("/home/me/run") / "root" / path.lstrip("/") for path in MOUNTS}
MAPPED = PathMap(HERE)


def here(path: str) -> str:
    return f"/home/me/run/root{path}"


@pytest.mark.parametrize(
    "text",
    [
        "{/data}",
        "{/data/x.csv}",
        "-I{/data/include} -L{/d}",
        "--out={/data/x}",
        "-o{/data/x}",
        "cp {/data/a} {/ckpt}",
        "PATH={/data/bin}:/usr/bin:{/d}",
        "PATH=$PATH:{/data/bin}",
        'open("{/data/x}"), open(\'{/ckpt}\'), open(f"{/data}/x", "rb")',
        '{"out":"{/data}","in":["{/d/a}","{/in/model}"]}',
        '"{\\"out\\": \\"{/data/x}\\"}"',
        "train --files {/data/a},{/data/cache/b},{/data/c}",
        "cat <{/data/a} >{/data/b} 2>{/d/err}; (cd {/data}&&ls)|wc",
        "curl -d @{/data/x} https://host/data",
        "file://{/data/x}",
        "#!{/data/bin/python}",
        "It is in {/data}. Or in {/ckpt}.",
        "printf '{/data}\\n'",
        "{/data}\n{/data/cache}\n\t{/data//x}",
        "name:{/data/train}",
        "x = `cat {/data/a}`",
        "{/data/mydata/data}",
    ],
)
def test_paths_are_rewritten_wherever_they_stand(text: str) -> None:
    """Braces mark what is to be replaced: `{/data}`."""
    marked = text
    for mount in MOUNTS:
        marked = marked.replace("{" + mount, "\0" + mount)
    plain, wanted = unmark(marked), unmark(marked, "/home/me/run/root")
    assert MAPPED.word(plain) == wanted
    assert MAPPED.word(wanted) == wanted


def unmark(text: str, front: str = "") -> str:
    """The text without its marks: `\0/data/x}`."""
    first, *rest = text.split("\0")
    return first + "".join(front + part.replace("}", "", 1) for part in rest)


@pytest.mark.parametrize(
    "text",
    [
        "/mydata",
        "/data2",
        "/data-old/x",
        "/data.old",
        "/data_x",
        "/dataset",
        "data",
        "./data",
        "../data",
        "~/data",
        "a/data",
        "//data",
        "https://host/data",
        "https://host:8080/data/x?p=/data",
        "s3://data/x",
        "s3://bucket/data",
        "$HOME/data",
        "${X}/data",
        '"$X"/data',
        "$(pwd)/data",
        "me@host:/data/x",
        "/usr/data",
        "/home/me/data",
        "\\/data\\/x",
        "My\\ /data",
        "*/data",
        "/data*",
        "/data$X",
        'root + "/data"',
        '/data"2"',
        "/dev/shm",
        "",
    ],
)
def test_other_paths_stay(text: str) -> None:
    assert MAPPED.word(text) == text


@pytest.mark.parametrize("folder", ["/work/tmp/run", "/data/run", "/d"])
def test_nothing_is_mapped_twice(folder: str) -> None:
    """Also where the run's own folder looks like a path of the step."""
    mapped = PathMap({path: Path(folder) / "root" / path.lstrip("/") for path in (*MOUNTS, "/work")})
    for text in ("/data/x", "/work:/data:/d", f"ls {folder}/root/data"):
        once = mapped.word(text)
        assert mapped.word(once) == once
    assert mapped.word("/data/x") == f"{folder}/root/data/x"


COMPONENT = st.text(st.sampled_from("abdt._-é"), min_size=1, max_size=4).filter(lambda name: name.strip(".") != "")
PATH = st.one_of(
    st.sampled_from(MOUNTS).map(lambda path: path.split("/")[1:]), st.lists(COMPONENT, min_size=1)
).flatmap(lambda front: st.lists(COMPONENT, max_size=2).map(lambda more: "/" + "/".join([*front, *more])))


def moved(path: str) -> str:
    """What a map of components makes of one path: the longest mount that it is in."""
    parts = PurePosixPath(path).parts
    for length in range(len(parts), 0, -1):
        if str(PurePosixPath(*parts[:length])) in HERE:
            return str(HERE[str(PurePosixPath(*parts[:length]))].joinpath(*parts[length:]))
    return path


def in_sentence(path: str) -> bool:
    """Whether the last component has a dot at its end, which a text has at the end of a sentence."""
    return path.endswith(".")


@given(
    st.lists(PATH.filter(lambda path: not in_sentence(path)), max_size=5),
    st.sampled_from([":", ",", " ", "\n", ";", " = "]),
)
def test_lists_of_paths_are_rewritten_path_by_path(paths: list[str], between: str) -> None:
    assert MAPPED.word(between.join(paths)) == between.join(map(moved, paths))


FRONT = st.text(st.sampled_from("abz09_.~/$*%)]}"), min_size=1, max_size=8)


@given(st.sampled_from(["", "https://", "s3://", "x "]), FRONT, PATH)
def test_what_goes_on_in_front_is_another_path(scheme: str, front: str, path: str) -> None:
    front = f"x{front}" if front[0] == "/" else front
    assert MAPPED.word(f"{scheme}{front}{path}") == f"{scheme}{front}{path}"


PIECES = st.sampled_from(
    [
        *MOUNTS,
        *map(here, MOUNTS),
        "/",
        ":",
        "=",
        '"',
        "'",
        "\\",
        " ",
        "\n",
        ".",
        "x",
        "@",
        "$",
        "file://",
        "https://",
        "-o",
        "+",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_any_text_is_mapped_once_and_only_by_its_paths(text: str) -> None:
    once = MAPPED.word(text)
    assert MAPPED.word(once) == once
    assert once.replace("/home/me/run/root", "") == text.replace("/home/me/run/root", "")


@given(st.text())
def test_text_without_the_paths_stays(text: str) -> None:
    if not any(path in text for path in MOUNTS):
        assert MAPPED.word(text) == text
    assert PathMap({}).word(text) == text


def test_a_long_script_takes_no_longer_than_its_length() -> None:
    text = "cp /data/a https://host/data x/data; " * 20_000
    assert MAPPED.word(text) == f"cp {here('/data')}/a https://host/data x/data; " * 20_000


def mapped(tmp_path: Path, **fields: Any) -> PathMap:
    step = {"image": "i", "command": ["x"], **fields}
    pipeline = Pipeline("p", steps={"s": step}, claims={"work": {"size": "1Gi"}})
    return paths_of(planned_step(pipeline, "s", Site.load()), tmp_path / "own", tmp_path / "shared")


def test_every_kind_of_path_has_its_place(tmp_path: Path) -> None:
    volumes = {
        "/claim": {"claim": "data", "sub_path": "a/b"},
        "/new": {"new_claim": "work"},
        "/scratch": {"empty_dir": "1Gi"},
        "/memory": {"memory": "1Gi"},
        "/config": {"config_map": "c"},
        "/secret/key": {"secret": "s", "sub_path": "key"},
        "/host": {"host_path": "/mnt/nvme"},
        "/nfs": {"nfs": {"server": "..", "path": "/../export"}},
        "/csi": {"csi": {"driver": "d"}},
        "/own": {"ephemeral": {"size": "1Gi"}},
        "/dev/shm": {"memory": "1Gi"},
    }
    found = mapped(
        tmp_path,
        volumes=volumes,
        checkpoint={"path": "/ckpt/", "store": "s3://b/c"},
        outputs={"loss": "float", "model": {"type": "file", "path": "/result/model.pt", "uri": "s3://b/m"}},
        inputs={"/in/set": {"claim": "data", "path": "set.csv"}, "/in/model": "s3://b/x"},
    )
    own, shared = tmp_path / "own", tmp_path / "shared"
    assert found.entries == {
        "/claim": shared / "claims/data/a/b",
        "/new": shared / "new-claims/work",
        "/scratch": own / "root/scratch",
        "/memory": own / "root/memory",
        "/config": own / "root/config",
        "/secret/key": own / "root/secret/key",
        "/host": shared / "host/mnt/nvme",
        "/nfs": shared / "nfs/__/export",
        "/csi": own / "root/csi",
        "/own": own / "root/own",
        "/ckpt": own / "root/ckpt",
        "/gpuflow/outputs": own / "outputs",
        "/in/set": shared / "claims/data/set.csv",
        "/in/model": own / "root/in/model",
        "/result": own / "root/result",
    }
    found.make()
    assert (own / "root/secret").is_dir() and not (own / "root/secret/key").exists()
    assert (shared / "claims/data").is_dir() and not (shared / "claims/data/set.csv").exists()
    assert (own / "outputs").is_dir() and found.read_only == {"/in/set"}
    found.make()
    told = found.sentences()
    assert len(told) == len(found.entries) + 1 and told[-1].startswith("/dev/shm is this machine's own")
    assert f"/claim is {shared}/claims/data/a/b: the claim data, a folder that the run begins without its data" in told
    assert all(path.is_relative_to(tmp_path) for path in found.entries.values())


def test_a_path_below_a_volume_has_no_place_of_its_own(tmp_path: Path) -> None:
    found = mapped(
        tmp_path,
        volumes={"/work": {"claim": "w"}},
        working_dir="/work/src",
        checkpoint={"path": "/work/ckpt", "store": "/work/kept"},
        outputs={"model": {"type": "directory", "path": "/work/out", "uri": "/work/models"}},
    )
    assert set(found.entries) == {"/work", "/gpuflow/outputs"}
    assert found.word("/work/ckpt") == str(tmp_path / "shared/claims/w/ckpt")


def test_the_working_directory_is_where_the_run_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = {"type": "file", "path": "/app/model.pt", "uri": "s3://b/m"}
    found = mapped(tmp_path, working_dir="/app", outputs={"model": output})
    assert found.word("python /app/train.py --out /app/model.pt") == (
        f"python {tmp_path}/train.py --out {tmp_path}/own/root/app/model.pt"
    )
    assert set(found.mounts) == {"/gpuflow/outputs"}  # a container has its own /app, and nothing hides it
    found.make()
    assert not (tmp_path / "own/root/app/model.pt").exists() and (tmp_path / "own/root/app").is_dir()


def test_an_output_in_a_folder_of_this_machine_is_mapped_alone(tmp_path: Path) -> None:
    found = mapped(tmp_path, outputs={"loss": {"type": "float", "path": "/tmp/loss"}, "a": {"path": "/top"}})
    assert found.word("echo 1 >/tmp/loss; ls /tmp/other /top") == (
        f"echo 1 >{tmp_path}/own/root/tmp/loss; ls /tmp/other {tmp_path}/own/root/top"
    )


def test_a_path_of_the_node_that_is_only_read_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "nvme").mkdir()
    volume = {"host_path": str(tmp_path / "nvme"), "read_only": True}
    found = mapped(tmp_path, volumes={"/host": volume, "/other": {"host_path": "/not/here", "read_only": True}})
    assert found.entries["/host"] == tmp_path / "nvme" and found.mounts["/host"] == tmp_path / "nvme"
    assert found.entries["/other"] == tmp_path / "shared/host/not/here"


@pytest.mark.parametrize("name", ["my runs", "a:b", "it's", "a,b", "$x", "a;b"])
def test_a_folder_that_would_break_scripts_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GpuflowError) as refused:
        mapped(tmp_path / name, volumes={"/data": {"claim": "data"}})
    assert refused.value.findings[0].code == "GF940" and "/data of the step" in refused.value.findings[0].message
    assert mapped(tmp_path / name).entries == {}


def test_a_real_script_finds_its_files(tmp_path: Path) -> None:
    found = mapped(tmp_path, volumes={"/data": {"claim": "data"}}, outputs={"n": {"type": "int", "path": "/res/n"}})
    found.make()
    script = """
        set -e
        mkdir -p /data/sub "/data/it's" && echo 1 >"/data/sub/a"
        for f in /data/sub/*; do cp $f '/data/copy'; done
        python3 -c 'import json; print(json.dumps({"from": "/data/copy"}), open("/data/copy").read())' >/data/log
        X=/data; cat "$X"/copy >/res/n
    """
    subprocess.run(["sh", "-c", found.word(script)], check=True, env={**os.environ, "HOME": "/"})
    data = tmp_path / "shared/claims/data"
    assert (data / "log").read_text().split() == ['{"from":', f'"{data}/copy"}}', "1"]
    assert (tmp_path / "own/root/res/n").read_text() == "1\n" and not Path("/data").exists()
