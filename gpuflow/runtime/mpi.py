"""MPI in a gang: rank 0 runs the program, `mpirun …`, and the other ranks run what it starts there.

    mpirun ── agent ── desk of rank 0 ── the star ── relay of rank 2 ── worker of rank 2 ── orted …

mpirun wants to start its daemon on other hosts as `ssh HOST COMMAND`. In the place of ssh it gets our agent
(`mpi_agent`), which asks rank 0's supervisor (`mpi_desk`). That one sends the order over the connections which the
gang has already; the rank's supervisor (`mpi_relay`) hands it to its own program (`mpi_worker`), which starts it. So
there are no keys and no sshd, and what mpirun starts has signals, grace and log as any program of a rank has.

Here is what mpirun reads: which hosts there are, with how many slots, and which agent to use. A variable that the step
sets itself is left as it is.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import socket

from gpuflow.runtime import files, this_program
from gpuflow.runtime.directory import discard
from gpuflow.runtime.options import BadOption

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOCKET, AGENT = "socket", "agent"
_FOLDER = "gpuflow-mpi"
OPERATORS_HOSTS = "/etc/mpi/hostfile"
"""The host file of Kubeflow's MPI operator, with hosts that want ssh."""
_LONGEST_PATH = 100
"""Bytes of a Unix socket's path; the kernel takes 107."""
_FEWEST_AT_ONCE = 128


class Host:
    """One rank as mpirun sees it. `slots`: how many processes it may start there."""

    def __init__(self, rank: int, name: str, slots: int) -> None:
        self.rank, self.name, self.slots = rank, name, slots


def hosts(ranks: Sequence[tuple[str, int]]) -> list[Host]:
    """The hosts, from the address and the slots of each rank. An address needs no DNS, which learns of a new pod late.

    Two ranks at one address (host network, one machine) would be one host to mpirun, and an IPv6 address is read as a
    host and its slots by some: such a rank is called `rank-N`, which the agent knows.
    """
    found: list[Host] = []
    for rank, (address, count) in enumerate(ranks):
        plain = plain_address(address)
        name = plain if plain and plain not in {each.name for each in found} else f"rank-{rank}"
        found.append(Host(rank, name, count))
    if not any(host.slots for host in found):
        raise BadOption("no rank of the gang has a slot for mpirun (--mpi): it could start nothing")
    return found


def plain_address(address: str) -> str | None:
    """An IPv4 address as mpirun takes it, also from a connection of both kinds; None for anything else."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        return None if found.ipv4_mapped is None else str(found.ipv4_mapped)
    return str(found)


def folder(environ: Mapping[str, str], *others: str) -> str:
    """A private folder for a socket and a program: a short path that every MPI can read, where programs may be run."""
    tried = []
    for place in dict.fromkeys((environ.get("TMPDIR") or "/tmp", "/tmp", "/dev/shm", *others)):
        if not place:
            continue
        made = ""
        try:
            made = files.private_folder([place], _FOLDER)
            if _suits(made):
                return made
            tried.append(f"{place}: its path is too long or has a space or colon, or no program may be run there")
        except OSError as refusal:
            tried.append(f"{place}: {refusal.strerror or refusal}")
        if made:
            discard(made)
    raise BadOption(
        f"mpirun needs an agent of ours, and there is no place for it: {'; '.join(tried)}; mount one at /tmp"
    )


def _suits(path: str) -> bool:
    if len(os.fsencode(path)) + len(SOCKET) + 1 > _LONGEST_PATH or any(mark in path for mark in " :,\t\n"):
        return False
    probe = os.path.join(path, AGENT)
    handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    os.close(handle)
    try:
        return os.access(probe, os.X_OK)  # the kernel says no where the mount does (noexec)
    finally:
        os.unlink(probe)


def is_agent(path: str) -> bool:
    """Whether a path is one that rank 0 gives its agent."""
    folder, name = os.path.split(path)
    return os.path.isabs(path) and name == AGENT and os.path.basename(folder).startswith(f"{_FOLDER}-")


def listener(place: str) -> socket.socket:
    """The socket of a private folder, which nobody else may reach."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(os.path.join(place, SOCKET))
        made.listen(128)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def write(place: str, found: Sequence[Host], own_address: str) -> None:
    """The files that the variables name."""
    words = " ".join(map(shlex.quote, this_program.command("mpi-agent", os.path.join(place, SOCKET))))
    used = [host for host in found if host.slots]
    texts = {
        "hosts.openmpi": "".join(f"{host.name} slots={host.slots}\n" for host in used),
        "hosts.hydra": "".join(f"{host.name}:{host.slots}\n" for host in used),
        # Else its daemons would look for mpirun at the pod's own name, which other pods cannot resolve.
        "hydra.conf": f"-localhost {own_address}\n",
    }
    for name, text in texts.items():
        files.write(os.path.join(place, name), text.encode("utf-8", "surrogateescape"))
    write_program(os.path.join(place, AGENT), f'exec {words} "$@"\n')


def write_program(path: str, text: str) -> None:
    """A script that only this user may run."""
    files.write(path, f"#!/bin/sh\n{text}".encode("utf-8", "surrogateescape"))
    os.chmod(path, 0o700)


def variables(place: str, size: int) -> dict[str, str]:
    """What mpirun of Open MPI 4 and 5, MPICH and Intel MPI reads in the place of flags."""
    agent, openmpi = os.path.join(place, AGENT), os.path.join(place, "hosts.openmpi")
    hydra = os.path.join(place, "hosts.hydra")
    at_once = str(max(_FEWEST_AT_ONCE, size))
    return {
        # A container's root is no root of the machine.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": openmpi,
        # A daemon that starts the next one has no agent: all of them are started from rank 0.
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": at_once,
        # A daemon that goes to the background takes its exit code and its words with it.
        "OMPI_MCA_orte_leave_session_attached": "1",
        # Two pods of one node would both be bound to its first processors.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_prte_default_hostfile": openmpi,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_num_concurrent": at_once,
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_HOST_FILE": hydra,
        "HYDRA_CONFIG_FILE": os.path.join(place, "hydra.conf"),
        # A process has the variables of its own pod, as with Open MPI: rank 0's name places that are not there.
        "HYDRA_ENV": "none",
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        "I_MPI_HYDRA_HOST_FILE": hydra,
        "I_MPI_HYDRA_ENV": "none",
    }
