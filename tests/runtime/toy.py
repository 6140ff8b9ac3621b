"""A toy training for the kill test: a chain of hashes, so that one wrong step shows in the end. Standard library only.

Checkpoints are files and directories in turn, written slowly enough to be killed in the middle, each with a hash of
its own. A resume that does not check out is written to the file `$TOY_CORRUPT` and ends the program.

With `$TOY_RANKS` 2 a second process walks a chain of its own, step by step with the first, and both halves are in
every checkpoint. With `$TOY_WORKERS` as many processes hand out the numbers of the steps and die of SIGTERM, as data
loaders do; a dead one ends the program, as in PyTorch.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time

DIRECTORY = os.environ["GPUFLOW_CHECKPOINT_DIR"]
STEPS = int(os.environ.get("TOY_STEPS", "2000"))
EVERY = int(os.environ.get("TOY_EVERY", "25"))
PAUSE = float(os.environ.get("TOY_PAUSE", "0.0005"))
ON_TERM = os.environ.get("TOY_ON_TERM", "save")
RANKS = int(os.environ.get("TOY_RANKS", "1"))
WORKERS = int(os.environ.get("TOY_WORKERS", "0"))
NAME = os.environ.get("TOY_NAME", "")
JOURNAL = os.environ.get("TOY_JOURNAL")
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


def save(state, other):
    """`other` writes the second rank's half, and returns when it is written."""
    body = weights(state)
    whole = dict(state, sha256=hashlib.sha256(body).hexdigest(), name=NAME)
    as_directory = RANKS > 1 or (state["step"] // EVERY) % 2 == 0
    temporary = os.path.join(DIRECTORY, f".step-{state['step']}.{os.getpid()}")
    target = os.path.join(DIRECTORY, f"step-{state['step']:06d}")
    if as_directory:
        os.makedirs(os.path.join(temporary, "deep"))
        write_slowly(os.path.join(temporary, "deep", "weights.bin"), body)
        other(os.path.join(temporary, "deep", "rank-1.json"))
        write_slowly(os.path.join(temporary, "state.json"), json.dumps(whole).encode())
    else:
        write_slowly(temporary, json.dumps(whole).encode() + b"\n" + body)
    if not os.path.exists(target):
        os.rename(temporary, target)
    for name in sorted(name for name in os.listdir(DIRECTORY) if name.startswith("step-"))[:-3]:
        path = os.path.join(DIRECTORY, name)
        os.system(f"rm -rf '{path}'") if os.path.isdir(path) else os.unlink(path)


def load(path):
    """The states of both ranks; ValueError for what is not of one piece, or not ours."""
    second = None
    if os.path.isdir(path):
        with open(os.path.join(path, "state.json"), "rb") as file:
            whole = json.loads(file.read())
        with open(os.path.join(path, "deep", "weights.bin"), "rb") as file:
            body = file.read()
        if RANKS > 1:
            with open(os.path.join(path, "deep", "rank-1.json"), "rb") as file:
                second = json.loads(file.read())
            if second["step"] != whole["step"]:
                raise ValueError(f"mixed: rank 0 is at step {whole['step']}, rank 1 at {second['step']}")
    else:
        with open(path, "rb") as file:
            head, _, body = file.read().partition(b"\n")
        whole = json.loads(head)
    if hashlib.sha256(body).hexdigest() != whole["sha256"]:
        raise ValueError("the weights do not match")
    if whole["name"] != NAME:
        raise ValueError(f"mixed: a checkpoint of {whole['name']}, and this is {NAME}")
    return {"step": whole["step"], "digest": whole["digest"]}, second


def journal(line):
    """For the test: where it resumed, and how far it came."""
    if JOURNAL:
        with open(JOURNAL, "a") as file:
            file.write(f"{os.environ.get('GPUFLOW_ATTEMPT', '0')} {line}\n")


def second_rank(pipe, state):
    """Told to stop it does nothing: the first rank decides for both."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    state = state or {"step": 0, "digest": "second"}
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        if asked == "step":
            state = advance(state)
            pipe.send(state)
        else:
            write_slowly(asked, json.dumps(state).encode())
            pipe.send("written")


def loader(pipe):
    """One worker of a data loader: SIGTERM ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    number = 0
    while True:
        try:
            pipe.send(number)
            pipe.recv()
        except (EOFError, BrokenPipeError):
            return
        number += 1


def begin(work, *arguments):
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_child, args=(work, here, there, arguments))
    process.daemon = True
    process.start()
    there.close()
    return here


def _child(work, here, there, arguments):
    here.close()
    work(there, *arguments)


def listen():
    """Say that this process wants to hear SIGTERM: the Python API does it so."""
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    stop = os.environ.get("GPUFLOW_STOP")
    if stop:
        folder = os.path.join(os.path.dirname(stop), "listeners")
        os.makedirs(folder, exist_ok=True)
        with open(f"/proc/{os.getpid()}/stat") as file:
            began = file.read().rpartition(")")[2].split()[19]
        with open(os.path.join(folder, str(os.getpid())), "w") as file:
            file.write(began)


def main():
    state, second = {"step": 0, "digest": f"start{NAME}"}, None
    resume = os.environ.get("GPUFLOW_RESUME_FROM")
    if resume:
        try:
            state, second = load(resume)
        except Exception as damage:
            if NAME and isinstance(damage, FileNotFoundError):
                # The program of an older attempt on the same volume may remove it as one of its own; tried again.
                journal("gone 0")
                return 4
            with open(os.environ["TOY_CORRUPT"], "a") as file:
                file.write(f"{resume}: {damage!r}\n")
            return 3
    journal(f"from {state['step']}")
    loaders = [begin(loader) for _ in range(WORKERS)]
    rank = begin(second_rank, second) if RANKS > 1 else None
    listen()

    def other(path):
        if rank is not None:
            rank.send(path)
            rank.recv()

    while state["step"] < STEPS:
        for pipe in loaders:
            try:
                pipe.recv()
                pipe.send("next")
            except (EOFError, OSError):
                print("DataLoader worker exited unexpectedly", file=sys.stderr)
                return 1
        state = advance(state)
        if rank is not None:
            rank.send("step")
            second = rank.recv()
        time.sleep(PAUSE)
        journal(f"at {state['step']}")
        if state["step"] % EVERY == 0:
            save(state, other)
        if told and ON_TERM != "ignore":
            if ON_TERM == "save":
                save(state, other)
                journal(f"saved {state['step']}")
            return 0
    with open(os.path.join(os.environ["GPUFLOW_OUTPUTS"], "digest"), "w") as file:
        file.write(state["digest"] + (second["digest"] if second else "") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
