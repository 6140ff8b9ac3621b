"""A training of several ranks, each of which has a part of the state: it saves that part, and no other rank has it.

Every step needs the digests of all ranks, asked for over a socket; a rank that misses a peer ends with exit code 1 at
once. A checkpoint that lacks a part, or has parts of different steps, is written down in `$TOY_CORRUPT`, and ends the
program with 3. Standard library only.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
import time

RANK, SIZE = int(os.environ["GPUFLOW_RANK"]), int(os.environ["GPUFLOW_WORLD_SIZE"])
PORT = int(os.environ["TOY_PORT"])
STEPS = int(os.environ.get("TOY_STEPS", "60"))
EVERY = int(os.environ.get("TOY_EVERY", "5"))
PAUSE = float(os.environ.get("TOY_PAUSE", "0.01"))
ALL = "TOY_ONE_DIRECTORY" in os.environ
DIRECTORY = os.environ["GPUFLOW_CHECKPOINT_DIR"]
told = []


def after(mine, everyone):
    return hashlib.sha256((mine + "".join(everyone)).encode()).hexdigest()


def save(state, meet):
    name = os.environ.get("TOY_NAME") or f"step-{state['step']:06d}"
    temporary, target = os.path.join(DIRECTORY, f".{name}.part"), os.path.join(DIRECTORY, name)
    if not ALL or RANK == 0:
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
    if ALL:
        meet("made")
    if os.environ.get("TOY_LAZY") != str(RANK):
        with open(os.path.join(temporary, f"part-{RANK}.json"), "w") as file:
            json.dump(state, file)
    if "TOY_DIFFERENT" in os.environ:
        with open(os.path.join(temporary, "same-name"), "w") as file:
            file.write(str(RANK))
    if ALL:
        meet("written")
    if not ALL or RANK == 0:
        if os.environ.get("TOY_LAZY") == str(RANK):
            return
        shutil.rmtree(target, ignore_errors=True)
        os.rename(temporary, target)
        old = sorted(name for name in os.listdir(DIRECTORY) if name.startswith("step-"))[:-3]
        for name in old:
            shutil.rmtree(os.path.join(DIRECTORY, name), ignore_errors=True)


def corrupt(sentence):
    with open(os.environ["TOY_CORRUPT"], "a") as file:
        file.write(f"rank {RANK}: {sentence}\n")
    sys.exit(3)


def load():
    resume = os.environ.get("GPUFLOW_RESUME_FROM")
    if not resume:
        return {"step": 0, "digest": f"start {RANK}"}
    parts = {}
    for rank in range(SIZE):
        try:
            with open(os.path.join(resume, f"part-{rank}.json")) as file:
                parts[rank] = json.load(file)
        except (OSError, ValueError) as error:
            corrupt(f"{resume}: {error}")
    if len({part["step"] for part in parts.values()}) != 1:
        corrupt(f"{resume} has parts of the steps {[part['step'] for part in parts.values()]}")
    return parts[RANK]


def peers():
    """Rank 0: a stream to each other rank. The others: one to rank 0."""
    until = time.monotonic() + 20
    if RANK == 0:
        listener = socket.create_server(("127.0.0.1", PORT))
        listener.settimeout(20)
        found = {}
        while len(found) < SIZE - 1:
            stream = listener.accept()[0].makefile("rw")
            found[int(stream.readline())] = stream
        return [found[rank] for rank in sorted(found)]
    while True:
        try:
            stream = socket.create_connection(("127.0.0.1", PORT), 5).makefile("rw")
            stream.write(f"{RANK}\n")
            stream.flush()
            return [stream]
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def exchange(streams, mine):
    """Everyone's text, in order of rank: rank 0 hears all and tells all."""

    def say(stream, value):
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    def hear(stream):
        line = stream.readline()
        if not line.endswith("\n"):
            raise OSError("a peer is gone")
        return json.loads(line)

    if RANK:
        say(streams[0], mine)
        return hear(streams[0])
    everyone = [mine, *(hear(stream) for stream in streams)]
    for stream in streams:
        say(stream, everyone)
    return everyone


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    state = load()
    try:
        streams = peers()
        open(os.path.join(os.environ["HERE"], f"up-{RANK}"), "w").close()

        def meet(word):
            exchange(streams, word)

        while state["step"] < STEPS:
            everyone = exchange(streams, [state["digest"], bool(told)])
            state = {"step": state["step"] + 1, "digest": after(state["digest"], [each for each, _ in everyone])}
            time.sleep(PAUSE)
            stop = any(each for _, each in everyone)
            if state["step"] % EVERY == 0 or stop:
                save(state, meet)
            if stop:
                return 0
        everyone = exchange(streams, state["digest"])
    except OSError as error:
        print(f"NCCL-like error: {error}", file=sys.stderr)
        return 1
    if RANK == 0:
        with open(os.path.join(os.environ["GPUFLOW_OUTPUTS"], "digest"), "w") as file:
            file.write(after("", everyone))
    return 0


if __name__ == "__main__":
    sys.exit(main())
