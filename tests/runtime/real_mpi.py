"""The MPI implementations that are installed here, and a program for each: it adds up a one of every process."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    int rank, size, one = 1, sum = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("process %d of %d in pod %s, sum %d\n", rank, size, getenv("GPUFLOW_RANK"), sum);
    fflush(stdout);
    if (count > 2 && rank == atoi(words[1])) MPI_Abort(MPI_COMM_WORLD, atoi(words[2]));
    if (count > 1) { MPI_Barrier(MPI_COMM_WORLD); sleep(300); }
    MPI_Finalize();
    return 0;
}
"""


class Mpi(NamedTuple):
    """One implementation of MPI."""

    mpirun: str
    mpicc: str
    environ: Mapping[str, str]
    program: str = ""


NAMES = {"openmpi": "Open", "mpich": "HYDRA"}
ENVIRON = {
    # One machine under several names: Open MPI would share memory with processes that it cannot reach so.
    "openmpi": {"OMPI_MCA_btl": "tcp,self"},
    "mpich": {},
}


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mpi:
    name = request.param
    found = installed(name)
    if found is None:
        pytest.skip(LACKING.format(name))
    program = tmp_path_factory.mktemp(name) / "program"
    compile_to(program, found.mpicc)
    return found._replace(program=str(program))


LACKING = "no mpirun and mpicc of {} are installed here (Debian: openmpi-bin libopenmpi-dev mpich)"


def installed(name: str) -> Mpi | None:
    """An implementation, by one of `NAMES`; still without its program."""
    for suffix in (f".{name}", ""):
        mpirun, mpicc = shutil.which(f"mpirun{suffix}"), shutil.which(f"mpicc{suffix}")
        if mpirun and mpicc and NAMES[name] in _version(mpirun):
            return Mpi(mpirun, mpicc, ENVIRON[name])
    return None


def compile_to(program: Path, mpicc: str) -> None:
    """The program, beside its source."""
    source = program.with_suffix(".c")
    source.write_text(PROGRAM)
    subprocess.run([mpicc, str(source), "-o", str(program)], check=True)


def _version(mpirun: str) -> str:
    return subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout


def processes(printed: str) -> list[str]:
    """The lines of the program, in the order of its processes."""
    return sorted(line for line in printed.splitlines() if line.startswith("process"))


def expected(pods: str) -> list[str]:
    """What it prints with one process for each letter, the number of its pod."""
    return [f"process {rank} of {len(pods)} in pod {pod}, sum {len(pods)}" for rank, pod in enumerate(pods)]
