"""MPI in a gang: rank 0 runs the program, `mpirun …`, and the other ranks run what it starts there.

    mpirun ── agent ── `AgentServer` of rank 0 ── connection ── `Relay` of rank 2 ── worker of rank 2 ── orted …

mpirun wants to start its daemon on other hosts as `ssh HOST COMMAND`. In the place of ssh it gets an agent
that asks rank 0's supervisor (`AgentServer`). That one sends the order over the connections which the gang has already.
The rank's supervisor (`Relay`) takes orders from rank 0, and from nobody else, and hands them to its own program, the
worker, which starts them. So there are no keys and no sshd, and what mpirun starts has signals, grace and log as any
program of a rank has. Agent and worker are in `mpi_programs`.

Here is also what mpirun reads: which hosts there are, with how many slots, and which agent to use. A variable that the
step sets itself is left as it is.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import os
import selectors
import shlex
import socket

from gpuflow.runtime.base import container, files
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.connection import ConnectionThread, Line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuflow.runtime.gangs.ranks.hub import Hub
    from gpuflow.runtime.gangs.ranks.protocol import Message
    from gpuflow.runtime.gangs.ranks.spoke import Spoke

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


def hosts_of(ranks: Sequence[tuple[str, int]]) -> list[Host]:
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


def make_folder(environ: Mapping[str, str], *others: str) -> str:
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


def listen_in(place: str) -> socket.socket:
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


def write_files(place: str, found: Sequence[Host], own_address: str) -> None:
    """The files that the variables name."""
    words = " ".join(map(shlex.quote, container.own_command("mpi-agent", os.path.join(place, SOCKET))))
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


def mpi_variables(place: str, size: int) -> dict[str, str]:
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


_LOCAL = "127.0.0.1"


class AgentServer(ConnectionThread):
    """A connection for each agent, and the order that it waits for. It shares the hub's lock: they call each other."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub.times)
        self.lock = hub.lock
        self._hub = hub
        self.folder = ""
        self.hosts: list[Host] = []
        self._ranks: dict[str, int] = {}
        self._closed = False
        self._last = 0
        self._waiting: dict[int, tuple[int, Line]] = {}
        """By the number of the order: its rank, and the agent that asked."""
        self._agents: list[Line] = []
        self._listener: socket.socket | None = None

    def open(self, environ: Mapping[str, str], *places: str) -> None:
        """Write what mpirun reads, and listen for its agents; BadOption where that cannot be."""
        own, self.hosts = self._all_hosts()
        self._ranks = {f"rank-{host.rank}": host.rank for host in self.hosts}
        self._ranks.update((host.name, host.rank) for host in self.hosts)
        self.folder = make_folder(environ, *places)
        write_files(self.folder, self.hosts, own)
        self._listener = listen_in(self.folder)
        self.selector.register(self._listener, selectors.EVENT_READ, None)
        self._hub.agent_server = self
        self.start()

    def end_orders(self, code: int | None) -> None:
        """Rank 0's program has ended: the other ranks wait for no more orders."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._hub.tell("over", code=code)

    def close(self) -> None:
        """Remove the folder and close all connections, also of agents that still wait."""
        self.end()
        with self.lock:  # the hub looks whether there is a desk, and then calls it
            self._hub.agent_server = None
        if self._listener is not None:
            self._listener.close()
        for line in self._agents:
            line.close()
        if self.folder:
            discard(self.folder)

    # -- what a rank says, told by the hub's thread

    def hear(self, rank: int, message: Message) -> None:
        order = protocol.number(message, "order")
        found = None if order is None else self._waiting.get(order)
        if order is None or found is None or found[0] != rank:
            return  # of an order that nobody waits for any more
        what = message["say"]
        facts = {"to": message.get("to"), "data": protocol.long_text(message, "data")}
        if what == "returned":
            del self._waiting[order]
            facts = {"code": protocol.number(message, "code")}
        self._answer(found[1], what, **facts)

    def lose(self, rank: int, why: str) -> None:
        """Nothing more will be heard from a rank: mpirun must not wait for it."""
        for order, (whose, line) in list(self._waiting.items()):
            if whose == rank:
                del self._waiting[order]
                self._answer(line, "no", because=f"rank {rank} is lost: {why}")

    # -- what the thread does

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            fresh = Line(connection, "an agent of mpirun")
            self._agents.append(fresh)
            self.selector.register(connection, selectors.EVENT_READ, fresh)

    def on_tick(self, now: float) -> None:
        # Also those whose order has returned: mpirun may be slow to read.
        for line in list(self._agents):
            if line.has_unsent:
                self._write(line, b"")

    def _hear(self, line: Line, message: Message) -> None:
        host, command = protocol.text(message, "host"), protocol.long_text(message, "command")
        rank = self._ranks.get(host)
        if message["say"] != "ask" or not command or line.rank is not None:
            self._answer(line, "no", because="the agent said what nobody understands here")
        elif rank is None:
            known = ", ".join(each.name for each in self.hosts[:8]) + (", …" if len(self.hosts) > 8 else "")
            self._answer(line, "no", because=f"{host} is no host of this gang; those are {known}")
        elif self._closed:
            self._answer(line, "no", because="rank 0's program has ended")
        elif rank == 0:
            self._answer(line, "here")
        else:
            self._send(line, rank, command)

    def _send(self, line: Line, rank: int, command: str) -> None:
        self._last += 1
        hub, order = self._hub, self._last
        member = hub.members.get(rank)
        line.rank = rank
        self._waiting[order] = (rank, line)
        agent = os.path.join(self.folder, AGENT)
        facts: dict[str, Any] = {"order": order, "command": command, "agent": agent}
        if hub.keys is not None and member is not None:
            nonce = protocol.text(member.hello, "nonce")
            facts["proof"] = hub.keys.sign(nonce, protocol.order_sign(hub.place.name, rank, order, command, agent))
        if not hub.tell_one(rank, "run", **facts):
            self.lose(rank, "it is not connected")

    def _answer(self, line: Line, what: str, **facts: Any) -> None:
        self._write(line, protocol.pack(what, **facts))

    def _drop(self, line: Line, why: str) -> None:
        """An agent is gone. mpirun has ended it where its order was still waited for: what it started must end too."""
        self._close(line)
        if line in self._agents:
            self._agents.remove(line)
        for order, (rank, other) in list(self._waiting.items()):
            if other is line:
                del self._waiting[order]
                self._hub.tell_one(rank, "hangup", order=order)

    def _all_hosts(self) -> tuple[str, list[Host]]:
        """Where the members reach us, and all ranks as hosts."""
        hub = self._hub
        with hub.lock:
            lines = [hub.members[rank] for rank in range(1, hub.place.size) if rank in hub.members]
            own = _LOCAL
            if lines:
                with contextlib.suppress(OSError):
                    own = str(lines[0].socket.getsockname()[0])
            members = [(line.peer, protocol.number(line.hello, "slots") or 0) for line in lines]
            found = hosts_of([(own, hub.place.slots or 0), *members])
        if not any(host.slots for host in found[1:]) and len(found) > 1:
            say("no rank but 0 has a slot for mpirun: the others have nothing to do")
        return plain_address(own) or own, found


EXIT_REFUSED = 255
PATIENCE = 5.0
"""Seconds that what mpirun started may take to end by itself, once rank 0's program has ended."""


class Relay(ConnectionThread):
    """Between the spoke and the rank's own program, the worker. It shares the spoke's lock: they call each other."""

    def __init__(self, spoke: Spoke, environ: Mapping[str, str], *places: str) -> None:
        super().__init__(spoke.times)
        self.lock = spoke.lock
        self._spoke = spoke
        self.leaders_code: int | None = None
        """The exit code of rank 0's program, once it has ended."""
        self._closed = False
        self._worker: Line | None = None
        self._early: list[bytes] = []
        """What came before our program was up."""
        self._last = 0
        self._copies: list[str] = []
        """Folders of rank 0 that we made here, for an agent of the same name."""
        self.folder = make_folder(environ, *places)
        try:
            self._listener = listen_in(self.folder)
        except BaseException:
            discard(self.folder)
            raise
        self.selector.register(self._listener, selectors.EVENT_READ, None)
        spoke.take_order = self.take
        self.start()

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, SOCKET)

    def take(self, message: Message) -> None:
        """What rank 0 says of its mpirun's orders; called by the spoke's thread."""
        what, order = message["say"], protocol.number(message, "order") or 0
        if what == "over":
            self.leaders_code = protocol.number(message, "code")
            self.finish(PATIENCE)
        elif what == "hangup":
            self._send("hangup", order=order)
        else:
            why = self._refusal(message, order) or self._write_agent_stub(protocol.text(message, "agent"))
            if why is None:
                self._last = order
                self._send("run", order=order, command=protocol.long_text(message, "command"))
            else:
                say(f"an order was refused: {why}")
                note = base64.b64encode(f"gpuflow-run: rank {self._spoke.place.rank} refused it: {why}\n".encode())
                self._spoke.say("printed", order=order, to=2, data=note.decode("ascii"))
                self._spoke.say("returned", order=order, code=EXIT_REFUSED)

    def finish(self, patience: float | None) -> None:
        """Take no more orders. What runs may end by itself, within `patience` seconds, or in the grace of a stop."""
        with self.lock:
            if not self._closed:
                self._closed = True
                self._send("over", patience=patience)

    def close(self) -> None:
        self._spoke.take_order = lambda message: None
        self.end()
        self._listener.close()
        if self._worker is not None:
            self._worker.close()
        for place in (self.folder, *self._copies):
            discard(place)

    def _refusal(self, message: Message, order: int) -> str | None:
        """Why a command is not run. It came over the connection to rank 0; with a key that must be proved as well."""
        spoke, command = self._spoke, protocol.long_text(message, "command")
        if not command or order <= self._last:
            return "it is none, or came twice"
        if self._closed:
            return "the attempt is over on this rank"
        if spoke.keys is not None and not spoke.keys.verify(
            message.get("proof"),
            spoke.nonce,
            protocol.order_sign(spoke.place.name, spoke.place.rank, order, command, protocol.text(message, "agent")),
        ):
            return "it is not signed with the key or the secret of this gang"
        return None

    def _write_agent_stub(self, path: str) -> str | None:
        """Open MPI's daemon starts nothing on other hosts, and yet ends if the agent is not where mpirun has it."""
        if not path or os.path.exists(path):
            return None
        if not is_agent(path):
            return f"{path[:200]} is no place for mpirun's agent"
        try:
            place = os.path.dirname(path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place, 0o700)
            self._copies.append(place)
            write_program(path, "echo 'gpuflow-run: only rank 0 starts commands elsewhere' >&2\nexit 255\n")
        except OSError as refusal:
            return f"mpirun's agent {path} cannot be had here too: {refusal.strerror or refusal}"
        return None

    def _send(self, what: str, **facts: object) -> None:
        message = protocol.pack(what, **facts)
        if self._worker is None:
            self._early.append(message)
        else:
            self._write(self._worker, message)

    # -- what the thread does

    def on_tick(self, now: float) -> None:
        if self._worker is not None and self._worker.has_unsent:
            self._write(self._worker, b"")

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            if self._worker is not None:
                connection.close()  # there is one
                return
            self._worker = Line(connection, "our program")
            self.selector.register(connection, selectors.EVENT_READ, self._worker)
            early, self._early = self._early, []
            self._write(self._worker, b"".join(early))

    def _hear(self, line: Line, message: Message) -> None:
        order = protocol.number(message, "order")
        if message["say"] == "printed":
            self._spoke.say("printed", order=order, to=message.get("to"), data=protocol.long_text(message, "data"))
        elif message["say"] == "returned":
            self._spoke.say("returned", order=order, code=protocol.number(message, "code"))

    def _drop(self, line: Line, why: str) -> None:
        self._close(line)
