"""The outputs of one attempt: where the program leaves them, how files are kept, and how all are given to the engine.

What is given is what the success marker says, be it this attempt's or an earlier one's.
"""

from __future__ import annotations

import contextlib
import os

from gpuflow.runtime.artifacts import outputs
from gpuflow.runtime.base import attempt_folder, files, records
from gpuflow.runtime.base.files import discard
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import Corrupt
from gpuflow.runtime.stores.local_files import NoRoom
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import BadName, Progress, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.artifacts.kubeflow_outputs import Artifact, Task
    from gpuflow.runtime.artifacts.outputs import Output
    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.base.records import KeptOutput, Success
    from gpuflow.runtime.state.ledger import Ledger
    from gpuflow.runtime.stores.store import Store


class Delivery:
    """The declared outputs and their folder. `stored` tries storage again for a while, `moves` says that it moves."""

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        stored: Callable[..., Any],
        moves: Callable[[Limit, int], None],
        open_place: Callable[[str], Store],
    ) -> None:
        self.options, self.environ, self.say = options, environ, say
        self._stored, self._moves, self._open_place = stored, moves, open_place
        self.declared = outputs.parse(options.output)
        self._uris = outputs.pairs(options.artifact, "artifact")
        self._places = outputs.pairs(options.deliver, "deliver")
        outputs.check_outputs(self.declared, self._uris, self._places)
        self._kubeflow: Task | None = None
        """What KFP's launcher says of the task, where it said something; BadOption before anything runs."""
        if options.kubeflow is not None:
            from gpuflow.runtime.artifacts import kubeflow_outputs

            self._kubeflow = kubeflow_outputs.Task(options.kubeflow)
        self._root: Store | None = None
        self.folder = options.outputs_dir or ""
        self.kept_in: list[tuple[Store, str]] = []
        self._own = False
        """Whether the folder is a temporary one, which nobody looks into afterwards."""
        self._before: dict[str, Any] = {}
        self._make_folder()

    def _make_folder(self) -> None:
        """The given folder, or a private one. Where none can be had, a step without outputs runs all the same."""
        if self.options.outputs_dir:
            os.makedirs(self.options.outputs_dir, exist_ok=True)
            return
        needed = any(output.path is None for output in self.declared)
        places = [self.environ.get("TMPDIR") or "/tmp"]
        if not needed:
            places.append("/dev/shm")
        try:
            self.folder, self._own = files.private_folder(places, "gpuflow"), True
        except OSError as refusal:
            if needed:
                raise BadOption(f"no folder for the outputs can be made: {refusal}; give --outputs-dir") from None
            self.say(f"no temporary folder can be made: {refusal}; the command has no $GPUFLOW_OUTPUTS")

    def clean_up(self) -> None:
        """Remove the temporary folder."""
        if self._own:
            discard(self.folder)

    def look(self) -> None:
        """Remove or remember old outputs before the command starts, so that they do not count as new ones."""
        self._before = outputs.prepare_outputs(self.declared, self.folder)

    def root(self) -> Store | None:
        """Where files and directories without a URI of their own are kept, when that is a place of its own."""
        where, options = self.options.artifacts, self.options
        if where is None or all(output.name in self._uris for output in self.declared if output.is_kept):
            return None
        if not options.run_id:
            raise BadOption("--artifacts needs --run-id: without it the outputs of two runs would lie in one place")
        if self._root is None:
            self._root = self._open_place(where)
        return self._root

    def try_places(self, ledger: Ledger) -> None:
        """Check that outputs can be stored, before the command spends hours; StorageError when they cannot."""
        tried: set[str] = set()
        for output in self.declared:
            where = self._uris.get(output.name) or self.options.artifacts
            if output.kind not in outputs.ARTIFACTS or where is None or where in tried:
                continue
            tried.add(where)
            try:
                self._stored(lambda where=where, output=output: self._try(where, output, ledger))
            except StorageError as refusal:
                raise StorageError(f'the output "{output.name}" cannot be kept at {where}: {refusal}') from refusal

    def _try(self, where: str, output: Output, ledger: Ledger) -> None:
        store = self._open_place(where)
        # In a folder of this attempt's own: should we be killed here, it goes with the rest of what it left.
        above = records.artifact_name(ledger.number, ledger.id)
        if where == self.options.artifacts:
            above = ledger.key("artifacts", attempt_folder.path_part(output.name), above)
        key = f"{above}/trial"
        for name in (f"files/{os.path.basename(output.place(self.folder))}", "manifest.json"):
            store.see_name(f"{above}/{name}")
        try:
            store.write(key, b"gpuflow\n")
        except FileNotFoundError as refusal:
            raise StorageError(str(refusal)) from refusal
        # Who may write need not be allowed to remove.
        with contextlib.suppress(StorageError, FileNotFoundError):
            store.delete([key])

    def collect(self, ledger: Ledger, store: Store, *, lasting: bool) -> dict[str, KeptOutput]:
        """What the program has left, its files kept in the store; BadOutput for what is missing or wrong."""
        kept = outputs.collect(self.declared, self.folder, self._before, self.options.engine)
        for output in self.declared:
            if output.kind in outputs.ARTIFACTS:
                kept[output.name] = self._keep_artifact(ledger, store, output, lasting=lasting)
        return kept

    def deliver_again(self, done: Success, ledger: Ledger, store: Store) -> int:
        """The outputs of a run that is done."""
        self.deliver(done, ledger, store)
        missing = [output.name for output in self.declared if output.name not in done.outputs]
        if missing:
            # The step was changed since; whoever looks for them should know why they are not there.
            self.say(f"attempt {done.attempt} left no output {', '.join(missing)}: it was not asked for then")
        self.say(f"attempt {done.attempt} has succeeded already; its outputs are given again")
        return 0

    def deliver(self, marker: Success, ledger: Ledger, store: Store) -> None:
        """Put the outputs of the successful attempt where the engine looks, including files without their own URI."""
        from gpuflow.runtime.artifacts import artifact_files

        try:
            given = outputs.select_outputs(marker.outputs, self.declared)
        except outputs.BadOutput as refusal:
            raise BadOption(
                f"attempt {marker.attempt} has succeeded, but {refusal}; --after-success again runs the step anew"
            ) from None
        if beyond := sorted(set(marker.outputs) - set(given)):
            self.say(f"attempt {marker.attempt} left outputs that this step does not have: {', '.join(beyond)}"[:500])
        for output in self.declared:
            kept, own = given.get(output.name), bool(ledger.id) and marker.id == ledger.id
            place = output.place(self.folder)
            if kept is None or kept.key is None or own or artifact_files.is_present(place, kept):
                continue
            limit, key = Limit(self.options.storage_timeout), ledger.key(*kept.key.split("/"))
            place_of_it = self._holder(kept, key, store)
            try:
                self._stored(
                    lambda kept=kept, key=key, place=place, limit=limit, holder=place_of_it: artifact_files.bring(
                        holder, key, kept, place, lambda count: self._moves(limit, count)
                    ),
                    limit,
                )
            except Corrupt as damage:
                raise StorageError(f'the output "{output.name}" cannot be given again: {damage}') from damage
            except NoRoom as refusal:
                raise BadOption(f'the output "{output.name}" cannot be given again: {refusal}') from None
        outputs.deliver(given, self.options.engine, self.folder, self._places)
        if self._kubeflow is not None:
            self._tell_kubeflow(self._kubeflow, marker, given)

    def _tell_kubeflow(self, task: Task, marker: Success, given: Mapping[str, KeptOutput]) -> None:
        """What KFP's launcher records in ML Metadata about the artifacts."""
        from gpuflow.runtime.artifacts import kubeflow_outputs as kubeflow

        options, kinds = self.options, outputs.pairs(self.options.output_kind, "output-kind")
        found = [
            kubeflow.Artifact(output.name, kinds[output.name], given[output.name], output.place(self.folder))
            for output in self.declared
            if output.name in given and output.name in kinds
        ]
        for artifact in found:
            if kubeflow.needs_files(artifact, options.hand_over) and not os.path.lexists(artifact.path):
                self._bring_back(artifact)
        about = {"pipeline": options.pipeline, "step": options.step, "run": options.run_id, "item": options.item}
        known = {f"gpuflow_{key}": value for key, value in about.items() if value is not None}
        known["gpuflow_attempt"] = marker.attempt
        kubeflow.tell(task, found, options.hand_over, known, self.say)

    def _bring_back(self, artifact: Artifact) -> None:
        """Fetch what an earlier attempt kept at a URI of its own, and what KFP needs as files."""
        from gpuflow.runtime.artifacts import artifact_files

        kept, limit = artifact.kept, Limit(self.options.storage_timeout)
        above, _, _ = (kept.uri or "").rpartition("/files" if kept.type == "directory" else "/files/")
        place, _, name = above.rpartition("/")
        try:
            store = self._open_place(place)
            self._stored(
                lambda: artifact_files.bring(store, name, kept, artifact.path, lambda count: self._moves(limit, count)),
                limit,
            )
        except (Corrupt, NoRoom) as refusal:
            raise StorageError(f'the output "{artifact.name}" cannot be given again: {refusal}') from refusal

    def _holder(self, kept: KeptOutput, key: str, store: Store) -> Store:
        """Which of the two places has an artifact. Its URI decides between them, and never names a third."""
        root = self.root()
        return store if root is None or (kept.uri or "").startswith(f"{store.url(key)}/files") else root

    def _keep_artifact(self, ledger: Ledger, store: Store, output: Output, *, lasting: bool) -> KeptOutput:
        """Upload a file or directory under this attempt's own name. The owner is asked before and after."""
        from gpuflow.runtime.artifacts import artifact_files

        uri = self._uris.get(output.name)
        source = output.place(self.folder)
        name = records.artifact_name(ledger.number, ledger.id)
        limit = Limit(self.options.storage_timeout)
        try:
            root = self.root() if uri is None else None
            if uri is None and root is None and not lasting:
                # There are no records that outlive this attempt: nothing can be given again.
                if self._own and output.path is None:
                    self._own = False
                    self.say(f'the output "{output.name}" is kept nowhere but at {source}')
                return artifact_files.kept_output(output.kind, artifact_files.measure_files(source), None, None)
            if uri is not None:
                store = self._open_place(uri)
            elif root is not None:
                store = root
            key = None if uri is not None else f"artifacts/{attempt_folder.path_part(output.name)}/{name}"
            prefix = name if key is None else ledger.key(*key.split("/"))
            told = Progress(self.say, f'the output "{output.name}" is kept')
            artifact = artifact_files.Artifact(ledger, store, prefix, source, lambda n: self._moves(limit, n), told)
            found = self._stored(artifact.keep, limit, lambda: artifact.settled)
            self.say(told.summary())
            self.kept_in.append((store, prefix[: -len(name)]))
        except (artifact_files.NotKept, BadName) as refusal:
            raise outputs.BadOutput(f'the output "{output.name}" cannot be kept: {refusal}') from None
        except StorageError as refusal:
            raise StorageError(f'the output "{output.name}" cannot be kept: {refusal}') from refusal
        self._stored(ledger.assert_owner, Limit(self.options.storage_timeout))
        inside = f"{prefix}/files/{found[0].path}" if output.kind == "file" else f"{prefix}/files"
        return artifact_files.kept_output(output.kind, found, store.url(inside), key)

    def remove_earlier(self, ledger: Ledger) -> None:
        """What earlier attempts of this run uploaded before they were lost; not those of other runs at the same URI."""
        for name in ledger.earlier_artifacts():
            for store, top in self.kept_in:
                store.delete([key for key, _ in store.names(f"{top}{name}")])
                store.clear_uploads(f"{top}{name}")
