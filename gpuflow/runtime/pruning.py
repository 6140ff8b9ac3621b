"""Which checkpoints in the store may go: all but the newest N, and never one that might still be needed.

What an older attempt kept is needed until this attempt has resumed from it or from a later one, or has seen that it is
damaged: a listing that was late or short must not make this attempt throw away what it did not see.
"""

from __future__ import annotations

from gpuflow.runtime import transfer
from gpuflow.runtime.records import Corrupt, attempt_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuflow.runtime.ledger import Ledger
    from gpuflow.runtime.store import Store

BATCH = 100
"""Keys that are deleted between two questions whether to go on."""


def prune(store: Store, ledger: Ledger, keep: int, newest: str, proceed: Callable[[], bool]) -> bool:
    """Keep N. A manifest goes before its files; uploads that never got one go too. False when told to stop before."""
    top = ledger.key("checkpoints")
    whole = [name for name, _ in transfer.manifests(store, ledger.base, ledger.since) if name not in ledger.damaged]
    spared = set(whole[-keep:]) if ledger.keys is None else _signed(store, ledger, whole, keep)
    doomed = []
    for key, _ in store.names(top):
        name = key[len(top) + 1 :].partition("/")[0]
        if name not in spared and name < newest and may_go(name, ledger):
            doomed.append(key)
    unsigned = _unsigned(store, ledger, [key for key in doomed if _is_manifest(key, top)])
    doomed = [key for key in doomed if key[len(top) + 1 :].partition("/")[0] not in unsigned]
    doomed.sort(key=lambda key: not _is_manifest(key, top))
    for at in range(0, len(doomed), BATCH):
        if not proceed():
            return False
        store.delete(doomed[at : at + BATCH])
    return True


def _signed(store: Store, ledger: Ledger, whole: list[str], keep: int) -> set[str]:
    """The newest N that are signed: a manifest that anybody wrote must not take the place of one of ours."""
    found: set[str] = set()
    for name in reversed(whole):
        if len(found) == keep:
            break
        try:
            transfer.read_manifest(store, ledger.key("checkpoints", name, "manifest.json"), ledger.keys)
            found.add(name)
        except Corrupt:
            continue
    return found


def _unsigned(store: Store, ledger: Ledger, manifests: list[str]) -> set[str]:
    """With keys, what none of ours has signed is not ours to remove: who has the wrong key must not destroy a run.

    What was forgotten goes all the same.
    """
    if ledger.keys is None:
        return set()
    found = []
    for key in manifests:
        name = key.split("/")[-2]
        if name in ledger.unsigned or (attempt_of(name) or 0) < ledger.since:
            continue
        try:
            transfer.read_manifest(store, key, ledger.keys)
        except Corrupt:
            found.append(name)
    ledger.unsigned.update(found)
    if found:
        more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
        ledger.say(f"the checkpoint {found[-1]}{more} not signed with our key: left in the store, and not removed")
    return ledger.unsigned


def may_go(name: str, ledger: Ledger) -> bool:
    """Whether nobody can need a checkpoint that is not among the newest."""
    attempt = attempt_of(name)
    if attempt is None:
        return False
    if attempt >= ledger.number or attempt < ledger.since:
        return True
    return name in ledger.damaged or (ledger.resumed is not None and name <= ledger.resumed)


def _is_manifest(key: str, top: str) -> bool:
    return key[len(top) + 1 :].partition("/")[2] == "manifest.json"
