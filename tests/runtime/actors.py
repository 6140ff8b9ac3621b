"""Processes of every kind, for the tests of who is told to stop: each writes down what happens to it in one file.

The argument is JSON: `name`, `kind` (deaf, handles, listens, ignores, forwards), `save` (seconds a save takes),
`patience` (seconds a forwarding launcher waits before it kills), `children` (of the same shape, with `session` for one
of its own and `daemon` for a double fork) and `leaves` (the exit code it ends with at once).
"""

import json
import os
import signal
import subprocess
import sys
import time

LOG = os.environ["ACTORS_LOG"]
me = json.loads(sys.argv[1])
children = []
told = []


def log(what):
    with open(LOG, "a") as file:
        file.write(f"{me['name']} {what}\n")


def start(child):
    words = [sys.executable, __file__, json.dumps(child)]
    if child.get("daemon"):
        subprocess.run(["sh", "-c", '"$@" &', "sh", *words], start_new_session=True)
    else:
        children.append(subprocess.Popen(words, start_new_session=bool(child.get("session"))))


def main():
    kind = me["kind"]
    if kind == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif kind != "deaf":
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    if kind == "listens":
        from gpuflow.runtime.base.attempt_folder import AttemptFolder

        AttemptFolder(os.path.dirname(os.environ["GPUFLOW_STOP"])).listen()
    for child in me.get("children", ()):
        start(child)
    log(f"up {os.getpid()}")
    if "leaves" in me:
        return int(me["leaves"])
    until = time.monotonic() + 60
    while not told and time.monotonic() < until and not (kind == "forwards" and all_gone()):
        time.sleep(0.01)
    if told:
        log("told")
    if kind == "forwards":
        for child in children:
            if told and child.poll() is None:
                child.send_signal(signal.SIGTERM)
        patient = time.monotonic() + me.get("patience", 30)
        while not all_gone() and time.monotonic() < patient:
            time.sleep(0.01)
        for child in children:
            if child.poll() is None:
                child.kill()
    elif told:
        time.sleep(me.get("save", 0))
        # As a save that still needs its data loaders.
        log("lost its workers" if any(child.poll() is not None for child in children) else "saved")
    return 0


def all_gone():
    return all(child.poll() is not None for child in children)


if __name__ == "__main__":
    sys.exit(main())
