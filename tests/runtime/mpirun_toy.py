"""A stand-in for mpirun that calls its agent as Open MPI 4.1 does. Standard library only.

It starts a daemon on every host of its host file but its own, all at once, with the quotes and the leading space that
Open MPI puts there: `agent HOST " orted" -mca ess "\\"env\\"" …`. The daemon is `$TOY_DAEMON`, a line of shell. On its
own host it starts that line itself. As mpirun does, it ends with the first code that is not 0, and kills all others
then; told to stop, it kills them at once, and ends with 1.
"""

import os
import signal
import subprocess
import sys
import time

AGENT = os.environ["OMPI_MCA_plm_rsh_agent"]  # noqa: SIM112 (Open MPI spells it so)
DAEMON = os.environ["TOY_DAEMON"]


def hosts():
    with open(os.environ["OMPI_MCA_orte_default_hostfile"]) as file:  # noqa: SIM112
        return [line.split(" slots=") for line in file.read().splitlines()]


def start(host, slots):
    if host == "127.0.0.1":
        return subprocess.Popen(["sh", "-c", DAEMON])
    words = [" " + DAEMON, "-mca", "ess", '"env"', "-mca", "slots", f'"{slots.strip()}"']
    return subprocess.Popen([AGENT, "-x", host, *words], stdin=subprocess.DEVNULL)


def main():
    running = [start(host, slots) for host, slots in hosts()]

    def kill(number=None, frame=None):
        for each in running:
            each.terminate()
        if number is not None:
            os._exit(1)

    signal.signal(signal.SIGTERM, kill)
    while True:
        codes = [each.poll() for each in running]
        failed = [code for code in codes if code]
        if failed:
            kill()
            return failed[0] if failed[0] > 0 else 1
        if None not in codes:
            return 0
        time.sleep(0.02)


sys.exit(main())
