"""The fixes taken back, one by one, in a copy of the package: the explorer must find each.

A text that is no longer in the code is an error: then the mutation must be written anew.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import gpuflow

PACKAGE = Path(gpuflow.__file__).resolve().parent


class Mutation:
    """A fix, how it is taken back, and where the explorer looks for the consequence."""

    def __init__(self, says: str, scenario: str, bounds: dict[str, int], *edits: tuple[str, str, str]) -> None:
        self.says, self.scenario, self.bounds, self.edits = says, scenario, bounds, edits
        """`bounds`: so many decisions of these kinds, none of the others: enough to find it, and quick."""


ALL: dict[str, Mutation] = {
    "D1": Mutation(
        "the stop file belongs to the attempt, and a program that left early says so",
        "volume",
        {"start": 1},
        (
            "supervise/running.py",
            """            self.directory.folder.prepare()
            return self.directory.folder
""",
            """            folder = AttemptFolder(self.directory.hidden)
            folder.prepare()
            if os.path.exists(folder.stop):
                os.unlink(folder.stop)
            return folder
""",
        ),
        ("supervise/running.py", "if self.folder is not None and self.folder.has_stopped():", "if False:"),
    ),
    "D2": Mutation(
        "a listing that fails is a failure, and what was not seen is not removed",
        "folder",
        {"crash": 1, "fault": 1},
        ("stores/folder_store.py", 'raise StorageError(f"the listing failed: {refusal}") from refusal', "return"),
        ("state/attempts.py", "if newest < self.seen:", "if False:"),
        ("checkpoints/restore.py", "if not found or found[-1][0] < known:", "if False:"),
        ("checkpoints/keeper.py", "if attempt >= ledger.number or attempt < ledger.since:", "if True:"),
    ),
    "D15": Mutation(
        "who finds a number taken reads the book again, and success is looked for after the claim",
        "machines",
        {"start": 1, "delay": 1},
        (
            "supervise/supervisor.py",
            "if self._persist(lambda h=history, d=done, r=renew: ledger.claim(h, fresh=d is not None, renew=r)):\n"
            "                break\n",
            "while not self._persist(lambda h=history, d=done, r=renew: ledger.claim(h, fresh=bool(d), renew=r)):\n"
            "                history.last += 1\n"
            "            break\n",
        ),
        ("supervise/supervisor.py", "again: Success | None = self._persist(ledger.success)", "again = None"),
        ("supervise/supervisor.py", "self._persist(lambda: ledger.look_again(history))", "history"),
        ("state/ledger.py", "if done is not None and done.id != self.id:", "if False:"),
    ),
    "last": Mutation(
        "with notice, or after the program's end, no save waits for the next regular one",
        "notice",
        {"notice": 1, "switch": 2},
        (
            "checkpoints/keeper.py",
            "return again if self._told or self._finishing else max(again, self._next_regular)",
            "return max(again, self._next_regular)",
        ),
        (
            "checkpoints/keeper.py",
            "self._rest, self._wait = (0.0, 0.0), FIRST_WAIT\n        self._wake()\n\n    def finish",
            "self._next_regular = 0.0\n        self._wake()\n\n    def finish",
        ),
        (
            "checkpoints/keeper.py",
            "        self._rest, self._wait = (0.0, 0.0), FIRST_WAIT\n        self._finishing",
            "        self._next_regular = 0.0\n        self._finishing",
        ),
    ),
    "D24": Mutation(
        "what an earlier attempt left in the outputs' folder is no output of this one",
        "restarts",
        {"program": 2},
        (
            "artifacts/outputs.py",
            "    for output in outputs:\n        if output.path is None:",
            "    for output in ():\n        if True:",
        ),
    ),
    "D32": Mutation(
        "numbers never start again: who forgets a run takes the next one",
        "forgotten",
        {"start": 1, "switch": 1},
        (
            "state/forget.py",
            "    if not numbers and not kept:\n        return\n",
            "    remove_before(book, 10**9)\n    if book.base:\n        return\n",
        ),
    ),
    "marker": Mutation(
        "each time a run is begun anew it has a success marker of its own",
        "forgotten",
        {"delay": 1},
        (
            "state/attempts.py",
            """self.key(f"success-{since:06d}.json" if since else "success.json")""",
            """self.key("success.json")""",
        ),
    ),
    "signature": Mutation(
        "what is not signed with the key of the run is not believed",
        "forged",
        {"start": 1},
        ("base/records.py", "if keys is not None and (", "if keys is None and ("),
    ),
}
"""The five of the issue, and what the explorer itself has found."""


def apply(mutation: Mutation, into: Path) -> None:
    """A copy of the package below `into`, without the fix."""
    shutil.copytree(PACKAGE, into / "gpuflow", ignore=shutil.ignore_patterns("__pycache__"))
    for file, old, new in mutation.edits:
        path = into / "gpuflow" / "runtime" / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has changed, write this mutation anew: {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")
