"""`gpuflow-run create`: create an object of the cluster from inside a step, wait for it, and end as it ends.

    gpuflow-run create FILE --run-id ID
    gpuflow-run create --manifest JSON --set spec.template.spec.containers[0].args[1]=0.1 --output lr=status.best

A Job (also Volcano's), JobSet, TrainJob, Experiment, PyTorchJob or MPIJob is known; for every other kind `--success`
and `--failure` say when it has ended. The object belongs to the pod that created it: it is deleted when the pod is told
to stop, and Kubernetes deletes it where nobody could. With `--run-id` its name ends with a hash of the run, so that a
second attempt of the step waits for what the first one created, and creates it anew only when it has failed.

Exit codes: 0 when it succeeded; when it failed, the exit code of the last of its pods that failed, else 1; 75 when we
were told to stop; 78 when it could not be created or asked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

from gpuflow.runtime.base import signals, units
from gpuflow.runtime.base.outcomes import EXIT_INTERRUPTED, EXIT_RUNTIME, EXIT_TIMED_OUT, SUPERVISOR_EXIT_CODES
from gpuflow.runtime.supervise import kube_client, object_state
from gpuflow.runtime.supervise.kube_client import (
    POLL,
    ApiRefusal,
    ApiServer,
    ApiUnreachable,
    Misuse,
    NoAccount,
    PodLogs,
    StopRequested,
    say,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

RUN = "gpuflow.dev/run"
"""The annotation by which a later attempt knows its own object."""
MANY = ("set", "success", "failure", "output")
USAGE = """usage: gpuflow-run create FILE | --manifest JSON [options]

  --run-id ID            a later attempt of the same run waits for the same object
  --set PLACE=VALUE      put a value into the manifest, as text; may be repeated
  --success PLACE=VALUE  when it has done its work; known for Job, JobSet, TrainJob, Experiment, PyTorchJob, MPIJob
  --failure PLACE=VALUE  when it has failed for good
  --output NAME=PLACE    write what stands there at the end to $GPUFLOW_OUTPUTS/NAME; may be repeated
  --timeout 2h           how long to wait; then it is deleted, and has failed
  --pods LABEL           the label of its pods, whose logs are repeated here; none: no logs

A PLACE is like status.conditions[type=Complete].status."""


class Request:
    """The words of the command, read."""

    def __init__(self, words: Sequence[str]) -> None:
        self.file: str | None = None
        self.given: dict[str, str] = {}
        self.many: dict[str, list[str]] = {name: [] for name in MANY}
        rest = iter(words)
        for word in rest:
            if not word.startswith("--"):
                if self.file is not None:
                    raise Misuse(f'two files, "{self.file}" and "{word}"; create takes one')
                self.file = word
                continue
            name, equals, value = word[2:].partition("=")
            if name not in ("manifest", "run-id", "timeout", "pods", *MANY):
                raise Misuse(f'unknown option "--{name}"\n{USAGE}')
            if not equals:
                if (following := next(rest, None)) is None:
                    raise Misuse(f"--{name} needs a value")
                value = following
            if name in MANY:
                self.many[name].append(value)
            else:
                self.given[name] = value
        if (self.file is None) == ("manifest" not in self.given):
            raise Misuse("give the manifest as a file or with --manifest, and not both")

    def manifest(self) -> dict[str, Any]:
        """The object, with what `--set` puts into it."""
        if self.file is not None:
            return kube_client.manifest_from_file(self.file, self.many["set"])
        return kube_client.manifest_from_text(self.given["manifest"], "--manifest", self.many["set"])


class Creation:
    """One object from its creation to its end."""

    def __init__(self, request: Request, api: ApiServer, environ: Mapping[str, str]) -> None:
        self.api, self.environ = api, environ
        self.outputs = [output.partition("=")[::2] for output in request.many["output"]]
        self.body = request.manifest()
        self.kind = object_state.name_of(self.body)
        self.good = tuple(request.many["success"]) or object_state.GOOD.get(self.kind, ())
        self.bad = tuple(request.many["failure"]) or object_state.BAD.get(self.kind, ())
        if not self.good or not self.bad:
            raise Misuse(f"nobody knows when a {self.kind} has ended; say it with --success and --failure")
        for condition in (*self.good, *self.bad):
            try:
                object_state.split(condition)
            except ValueError as refusal:
                raise Misuse(str(refusal)) from None
        try:
            self.timeout = units.seconds(request.given["timeout"]) if "timeout" in request.given else None
        except ValueError as refusal:
            raise Misuse(f"--timeout: {refusal}") from None
        self.pods_label = request.given.get("pods", object_state.PODS.get(self.kind))
        metadata = self.body["metadata"]
        self.namespace = metadata.setdefault("namespace", api.namespace)
        self.run = request.given.get("run-id")
        if self.run:
            self._name_after_run(metadata)
        elif not metadata.get("name") and not metadata.get("generateName"):
            raise Misuse("the manifest has neither metadata.name nor metadata.generateName")
        self._own(metadata)
        self.folder = kube_client.collection_path(api, self.body)
        self.path: str | None = None

    def _name_after_run(self, metadata: dict[str, Any]) -> None:
        name = str(metadata.pop("generateName", "") or metadata.get("name") or self.kind.lower()).rstrip("-")
        hashed = hashlib.sha256(f"{self.run}/{name}".encode()).hexdigest()[:8]
        metadata["name"] = f"{name[:37].rstrip('-')}-{hashed}"
        metadata.setdefault("annotations", {})[RUN] = self.run

    def _own(self, metadata: dict[str, Any]) -> None:
        """Let Kubernetes delete the object with this pod, where the engine tells us which pod we are."""
        name, uid = self.environ.get("KFP_POD_NAME"), self.environ.get("KFP_POD_UID")
        if name and uid and self.namespace == self.api.namespace:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
            metadata.setdefault("ownerReferences", []).append(owner)

    def start(self) -> dict[str, Any]:
        """The object, created now or by an earlier attempt of this run."""
        name = self.body["metadata"].get("name")
        self.path = f"{self.folder}/{name}" if self.run else None
        for _ in range(60):
            try:
                made: dict[str, Any] = self.api.retry_while_unreachable(lambda: self.api.create(self.folder, self.body))
                self.path = f"{self.folder}/{made['metadata']['name']}"
                say(f"{self.kind} {made['metadata']['name']}: created in {self.namespace}")
                return made
            except ApiRefusal as refusal:
                if refusal.status != 409:
                    raise
            there = self.api.get_if_present(f"{self.folder}/{name}")
            if there is None or "deletionTimestamp" in there["metadata"]:
                time.sleep(POLL)  # it is going: the next round creates it
                continue
            if not self.run or there["metadata"].get("annotations", {}).get(RUN) != self.run:
                raise Misuse(
                    f"{self.kind} {name} is there already, and this run did not create it; choose another name"
                )
            if not object_state.holds(there, self.bad):
                say(f"{self.kind} {name}: created by an earlier attempt of this run; waiting for it")
                return there
            say(f"{self.kind} {name}: failed in an earlier attempt ({object_state.words_of(there)}); created anew")
            self.api.retry_while_unreachable(lambda: self.api.delete(f"{self.folder}/{name}"))
        raise Misuse(f"{self.kind} {name} does not go away")

    def wait(self) -> int:
        """Until it has ended, or we are told to stop."""
        made = self.start()
        name, path = made["metadata"]["name"], f"{self.folder}/{made['metadata']['name']}"
        labelled = self.pods_label and self.pods_label != "none"
        logs = PodLogs(self.api, self.namespace, f"{self.pods_label}={name}") if labelled else None
        began, before = time.monotonic(), ""
        while True:
            if (now := self.api.get_if_present(path)) is None:
                say(f"{self.kind} {name}: somebody deleted it")
                return 1
            if logs is not None:
                logs.look()
            words = object_state.words_of(now)
            if words != before:
                say(f"{self.kind} {name}: {words}")
                before = words
            good, bad = object_state.holds(now, self.good), object_state.holds(now, self.bad)
            if good or bad:
                if logs is not None:
                    logs.finish(5.0)
                return self._write_outputs(now) if good else self._exit_code(name)
            if self.timeout is not None and time.monotonic() - began > self.timeout:
                say(f"{self.kind} {name}: not done after {units.format_seconds(self.timeout)}")
                self.remove()
                return EXIT_TIMED_OUT
            time.sleep(POLL)

    def remove(self) -> None:
        """Delete what we created."""
        if self.path is not None:
            try:
                self.api.delete(self.path)
                say(f"{self.kind} {self.path.rsplit('/', 1)[1]}: deleted")
            except (ApiRefusal, ApiUnreachable) as failure:
                say(f"{self.kind} {self.path.rsplit('/', 1)[1]}: NOT deleted: {failure}")

    def _write_outputs(self, now: dict[str, Any]) -> int:
        folder = self.environ.get("GPUFLOW_OUTPUTS", "")
        for name, place in self.outputs:
            if (value := object_state.value_at(now, place)) is None:
                say(f"output {name}: there is nothing at {place}")
                return 1
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(object_state.format_value(value))
        return 0

    def _exit_code(self, name: str) -> int:
        """The exit code of the last of its pods that failed; the engine's own codes stay ours."""
        if not self.pods_label or self.pods_label == "none":
            return 1
        try:
            query = {"labelSelector": f"{self.pods_label}={name}"}
            listed = self.api.get(object_state.path_of("v1", self.namespace, "pods"), **query).get("items", [])
        except (ApiRefusal, ApiUnreachable):
            return 1
        ended = [
            (state.get("finishedAt") or "", int(state.get("exitCode", 1)))
            for pod in listed
            for status in pod.get("status", {}).get("containerStatuses", [])
            for state in [status.get("state", {}).get("terminated") or {}]
            if state.get("exitCode")
        ]
        code = max(ended)[1] if ended else 1
        return 1 if code in SUPERVISOR_EXIT_CODES else code


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Create, wait, end as it ends."""
    try:
        if not words or words[0] in ("--help", "-h"):
            print(USAGE)
            return 0 if words else 2
        return _run(Creation(Request(words), ApiServer(environ), environ))
    except (Misuse, NoAccount, ApiRefusal) as refusal:
        print(f"gpuflow-run: {refusal}", file=sys.stderr)
        return EXIT_RUNTIME
    finally:
        signals.release()


def _run(creation: Creation) -> int:
    try:
        kube_client.stop_on_signal()
        return creation.wait()
    except StopRequested:
        creation.remove()
        return EXIT_INTERRUPTED
