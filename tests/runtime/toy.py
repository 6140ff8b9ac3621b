"""A toy training for the kill test: a chain of hashes, so that one wrong step shows in the end. Standard library only.

Checkpoints are files and directories in turn, written slowly enough to be killed in the middle, each with a hash of
its own. A resume that does not check out is written to the file `$TOY_CORRUPT` and ends the program.
"""

import hashlib
import json
import os
import signal
import sys
import time

DIRECTORY = os.environ["GPUFLOW_CHECKPOINT_DIR"]
STEPS = int(os.environ.get("TOY_STEPS", "2000"))
EVERY = int(os.environ.get("TOY_EVERY", "25"))
PAUSE = float(os.environ.get("TOY_PAUSE", "0.0005"))
ON_TERM = os.environ.get("TOY_ON_TERM", "save")
told = []


def advance(state):
    digest = hashlib.sha256(f"{state['digest']}:{state['step']}".encode()).hexdigest()
    return {"step": state["step"] + 1, "digest": digest}


def weights(state):
    return hashlib.sha256(state["digest"].encode()).digest() * (1000 + 100 * (state["step"] % 40))


def write_slowly(path, data):
    with open(path, "wb") as file:
        for at in range(0, len(data), 16384):
            file.write(data[at : at + 16384])
            time.sleep(0.0005)


def save(state):
    body = weights(state)
    whole = dict(state, sha256=hashlib.sha256(body).hexdigest())
    as_directory = (state["step"] // EVERY) % 2 == 0
    temporary = os.path.join(DIRECTORY, f".step-{state['step']}.{os.getpid()}")
    target = os.path.join(DIRECTORY, f"step-{state['step']:06d}")
    if as_directory:
        os.makedirs(os.path.join(temporary, "deep"))
        write_slowly(os.path.join(temporary, "deep", "weights.bin"), body)
        write_slowly(os.path.join(temporary, "state.json"), json.dumps(whole).encode())
    else:
        write_slowly(temporary, json.dumps(whole).encode() + b"\n" + body)
    if not os.path.exists(target):
        os.rename(temporary, target)
    for name in sorted(name for name in os.listdir(DIRECTORY) if name.startswith("step-"))[:-3]:
        path = os.path.join(DIRECTORY, name)
        os.system(f"rm -rf '{path}'") if os.path.isdir(path) else os.unlink(path)


def load(path):
    if os.path.isdir(path):
        with open(os.path.join(path, "state.json"), "rb") as file:
            whole = json.loads(file.read())
        with open(os.path.join(path, "deep", "weights.bin"), "rb") as file:
            body = file.read()
    else:
        with open(path, "rb") as file:
            head, _, body = file.read().partition(b"\n")
        whole = json.loads(head)
    if hashlib.sha256(body).hexdigest() != whole["sha256"]:
        raise ValueError("the weights do not match")
    return {"step": whole["step"], "digest": whole["digest"]}


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    state = {"step": 0, "digest": "start"}
    resume = os.environ.get("GPUFLOW_RESUME_FROM")
    if resume:
        try:
            state = load(resume)
        except Exception as damage:
            with open(os.environ["TOY_CORRUPT"], "a") as file:
                file.write(f"{resume}: {damage!r}\n")
            return 3
    while state["step"] < STEPS:
        state = advance(state)
        time.sleep(PAUSE)
        if state["step"] % EVERY == 0:
            save(state)
        if told and ON_TERM != "ignore":
            if ON_TERM == "save":
                save(state)
            return 0
    with open(os.path.join(os.environ["GPUFLOW_OUTPUTS"], "digest"), "w") as file:
        file.write(state["digest"] + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
