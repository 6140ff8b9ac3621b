"""A training of several ranks that needs all of them, as one with NCCL does. Standard library only.

Rank 0 walks a chain of hashes; every step needs a number from each other rank, asked for over a socket. A rank that
misses a peer ends with exit code 1 at once, whatever the cause: this is what a supervisor must not take for a failure.
Rank 0 saves; all ranks resume from the same checkpoint, and a rank whose step is another one than rank 0's says so in
the file `$TOY_CORRUPT` and ends with 3.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import time

RANK, SIZE = int(os.environ["GPUFLOW_RANK"]), int(os.environ["GPUFLOW_WORLD_SIZE"])
PORT = int(os.environ["TOY_PORT"])
STEPS = int(os.environ.get("TOY_STEPS", "200"))
EVERY = int(os.environ.get("TOY_EVERY", "5"))
PAUSE = float(os.environ.get("TOY_PAUSE", "0.01"))
DIRECTORY = os.environ["GPUFLOW_CHECKPOINT_DIR"]
told = []


def share(step, rank):
    return hashlib.sha256(f"{rank}:{step}".encode()).hexdigest()


def save(state):
    temporary = os.path.join(DIRECTORY, f".step-{state['step']}.{os.getpid()}")
    target = os.path.join(DIRECTORY, f"step-{state['step']:06d}")
    with open(temporary, "w") as file:
        json.dump(state, file)
    os.rename(temporary, target)
    for name in sorted(name for name in os.listdir(DIRECTORY) if name.startswith("step-"))[:-3]:
        os.unlink(os.path.join(DIRECTORY, name))


def load():
    resume = os.environ.get("GPUFLOW_RESUME_FROM")
    if not resume:
        return {"step": 0, "digest": "start"}
    with open(resume) as file:
        return json.load(file)


def lead(state):
    listener = socket.create_server(("127.0.0.1", PORT))
    listener.settimeout(20)
    peers = {}
    while len(peers) < SIZE - 1:
        stream = listener.accept()[0].makefile("rw")
        rank, step = map(int, stream.readline().split())
        if step != state["step"]:
            with open(os.environ["TOY_CORRUPT"], "a") as file:
                file.write(f"rank {rank} resumes at step {step}, rank 0 at {state['step']}\n")
            return 3
        peers[rank] = stream
    while state["step"] < STEPS:
        digest = state["digest"]
        for rank in sorted(peers):
            peers[rank].write(f"{state['step']}\n")
            peers[rank].flush()
        for rank in sorted(peers):
            line = peers[rank].readline()
            if not line.endswith("\n"):
                print(f"NCCL-like error: rank {rank} is gone", file=sys.stderr)
                return 1
            digest = hashlib.sha256((digest + line.strip()).encode()).hexdigest()
        state = {"step": state["step"] + 1, "digest": digest}
        time.sleep(PAUSE)
        if state["step"] % EVERY == 0 or told:
            save(state)
        if told:
            return 0
    for rank in peers:
        peers[rank].write("end\n")
        peers[rank].flush()
    with open(os.path.join(os.environ["GPUFLOW_OUTPUTS"], "digest"), "w") as file:
        file.write(state["digest"])
    return 0


def follow(state):
    until = time.monotonic() + 20
    while True:
        try:
            stream = socket.create_connection(("127.0.0.1", PORT), 5).makefile("rw")
            break
        except OSError:
            if time.monotonic() > until:
                return 1
            time.sleep(0.05)
    stream.write(f"{RANK} {state['step']}\n")
    stream.flush()
    while True:
        line = stream.readline()
        if line == "end\n":
            return 0
        if not line.endswith("\n"):
            print("NCCL-like error: rank 0 is gone", file=sys.stderr)
            return 1
        stream.write(f"{share(int(line), RANK)}\n")
        stream.flush()


def main():
    # Told to stop, rank 0 decides for all; the others go on until it is gone.
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        return lead(load()) if RANK == 0 else follow(load())
    except OSError as error:
        print(f"NCCL-like error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
