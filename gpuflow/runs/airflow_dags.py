"""Whether Airflow has the DAG of a pipeline as it would be compiled now, and with --apply making it so.

Airflow reads DAG files from its folder by itself, so a compiled file has arrived when Airflow shows its text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.local.record import write_whole
from gpuflow.runs.airflow_api import WHERE, Api, config_value
from gpuflow.runs.model import Submission

READ_WITHIN = 420.0
"""Seconds: Airflow looks for new files every five minutes unless its settings say otherwise."""
EVERY = 2.0
HEADER = re.compile(r"^# Made by gpuflow \S+ from (.*) sha256:([0-9a-f]+) for site ", re.MULTILINE)


class Dag:
    """The DAG of one submission."""

    def __init__(self, api: Api, submission: Submission) -> None:
        self._api, self._submission, self._pipeline = api, submission, submission.plan.pipeline
        self.name, self._file = self._pipeline.name, submission.compiled.artifact.name
        where = f" --namespace {submission.namespace}" if submission.namespace else ""
        self._write = f"gpuflow compile {self._pipeline.source.file or 'FILE'} --target airflow{where} -o DAGS_FOLDER/ "
        self._write += f"writes {self._file} there; with --apply, submit does it where the folder is on this machine"

    def ready(self, undo: ExitStack) -> Iterator[Finding]:
        """Make sure that runs of it can start. `undo` gets what puts everything back that no run begins with."""
        lack = self._lack(set())
        if lack is not None and lack.severity != "error":
            yield lack
        elif lack is not None:
            if not self._submission.apply:
                raise GpuflowError(lack)
            yield self._put_file(lack, undo)
        if not self._api.get("dags", self.name).get("is_paused"):
            return
        if not self._submission.apply:
            text = f'the DAG "{self.name}" is paused: a run of it would wait until somebody unpauses it'
            raise fail("GF975", text, where=WHERE, hint=f"airflow dags unpause {self.name}, or submit with --apply")
        self._pause(paused=False)
        undo.callback(self._pause, paused=True)
        more = "; it starts runs by itself from now on" if self._pipeline.schedule or self._pipeline.on_data else ""
        yield Finding("GF958", f'unpaused the DAG "{self.name}"{more}', WHERE, severity="note")

    def _pause(self, *, paused: bool) -> None:
        self._api.ask("PATCH", "dags", self.name, query={"update_mask": "is_paused"}, body={"is_paused": paused})

    def _lack(self, known: set[Any]) -> Finding | None:
        """What Airflow's DAG lacks to be this pipeline; no error where that may be meant. `known`: the import errors of
        an earlier file."""
        broken = [each for each in self._import_errors() if each["timestamp"] not in known]
        if broken:
            last = [line for line in str(broken[0].get("stack_trace")).splitlines() if line.strip()][-1:]
            text = f"Airflow cannot import {broken[0]['filename']}: {''.join(last).strip()}"
            return Finding("GF973", text, WHERE, f"gpuflow must be installed where DAGs are read. {self._write}")
        dag, code = self._api.get("dags", self.name), self._api.get("dagSources", self.name)
        if dag is None or code is None or dag.get("is_stale"):
            return Finding("GF954", f'Airflow has no DAG "{self.name}"', self._pipeline.where("name"), self._write)
        texts = self._submission.compiled.text, str(code["content"])
        here, there = (HEADER.search(text) for text in texts)
        if here is None or there is None:
            text = f'the DAG "{self.name}" is no compiled file: it was not compared, and runs as it is'
            return Finding("GF974", text, WHERE, severity="note")
        if here[2] != there[2]:
            text = f'the DAG "{self.name}" in Airflow is not that of this source: sha256 {there[2]}, and not {here[2]}'
            return Finding("GF974", text, self._pipeline.where("name"), self._write)
        # Where the files are decides what they call their source.
        plain = (re.sub(r"(?m)^#.*\n", "", text).replace(head[1], "") for text, head in zip(texts, (here, there)))  # noqa: B905
        if len({*plain}) > 1:
            text = f'the DAG "{self.name}" in Airflow was compiled for another site, with other options, or by another '
            return Finding("GF974", f"{text}gpuflow: what was checked may differ", WHERE, self._write, "warning")
        return None

    def _import_errors(self) -> list[dict[str, Any]]:
        errors = self._api.pages("import_errors", "importErrors")
        return [each for each in errors if Path(str(each["filename"])).name == self._file]

    def _put_file(self, lack: Finding, undo: ExitStack) -> Finding:
        """Write the compiled file, and wait until Airflow has read it."""
        folder = Path(config_value("core", "dags_folder") or "/-").expanduser()
        if not folder.is_dir():
            text = f"{lack.message}; --apply writes into Airflow's DAGs folder, and on this machine there is none"
            raise fail(lack.code, text, where=lack.where, hint=f"set AIRFLOW__CORE__DAGS_FOLDER; or {self._write}")
        dag = self._api.get("dags", self.name) or {}
        file = folder / (dag.get("relative_fileloc") or self._file)
        before = file.read_text(encoding="utf-8", errors="replace") if file.exists() else None
        if before is not None and not HEADER.search(before):
            text = f"{file} is no compiled file, and is not replaced"
            raise fail("GF974", text, where=Where(str(file)), hint="move it away, or rename the pipeline")
        known = {each["timestamp"] for each in self._import_errors()}
        undo.callback(partial(file.unlink, missing_ok=True) if before is None else partial(write_whole, file, before))
        try:
            write_whole(file, self._submission.compiled.text)
        except OSError as fault:
            text, hint = f"{file} cannot be written: {fault.strerror or fault}", self._write
            raise EnvironmentFailure(Finding("GF906", text, Where(str(file)), hint)) from None
        if dag.get("file_token"):
            self._api.ask("PUT", "parseDagFile", dag["file_token"], accept=(404, 409))
        end = time.monotonic() + READ_WITHIN
        while (now := self._lack(known)) is not None and now.severity == "error":
            if now.code == "GF973":
                raise GpuflowError(now)
            if time.monotonic() > end:
                text = f"Airflow has not read {file} within {READ_WITHIN:.0f} s; everything is as it was before"
                hint = "is this the DAGs folder of that Airflow, and does its DAG processor run?"
                raise fail("GF954", text, where=Where(str(file)), hint=hint)
            time.sleep(EVERY)
        return Finding("GF958", f"wrote {file}, and Airflow has read it", WHERE, severity="note")
