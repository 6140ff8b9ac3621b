"""A run that starts from nothing: numbers go on, and what lies before a number does not count any more.

Numbers never start again: who forgets a run takes the next number and says that nothing before it counts (`since`).
What is forgotten is removed then, or by any later attempt.
"""

from __future__ import annotations

import os

from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.options import BadOption, identity_of_options
from gpuflow.runtime.base.record_fields import attempt_of
from gpuflow.runtime.base.records import Claim, Corrupt, UnknownFormat
from gpuflow.runtime.base.signing import read_keys
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.attempts import RunRecords, remove_before, utc_now
from gpuflow.runtime.state.directory_owner import records_folder
from gpuflow.runtime.stores import storage_timeout
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.base.options import Options


def forget(options: Options) -> int:
    """`gpuflow-run forget`: the run starts from nothing next time, with full budgets."""
    given = [place for place in (options.store, options.state) if place]
    if not (given or options.checkpoint_dir) or not options.run_id:
        raise BadOption("forget needs --run-id and --store, --state or --checkpoint-dir: where the run is kept")
    base = identity_of_options(options)
    keys = read_keys(options.key_file, say)
    storage_timeout.CALL_DEFAULTS.seconds, storage_timeout.CALL_DEFAULTS.say = options.storage_timeout, say
    try:
        # Checkpoints go with the attempts that made them, also where those are kept in another place.
        kept = open_store(options.store) if options.store else None
        for place in [open_store(place) for place in given] or [records_folder(options, base)]:
            run = RunRecords(place, base, kept, say, keys)
            run.artifacts = open_store(options.artifacts) if options.artifacts else None
            forget_run(run)
    except (StorageError, UnknownFormat) as refusal:
        raise BadOption(f"storage failed: {refusal}") from None
    print(f"gpuflow-run: forgot {base}")
    return 0


def forget_run(run: RunRecords) -> None:
    """Claim the next number and mark all attempts before it as forgotten; a running attempt loses ownership."""
    numbers = run.numbers()
    if run.keys is None and any(_is_signed(run, number) for number in reversed(numbers)):
        raise BadOption("the records of this run are signed: to forget it, give its key by --key-file")
    # A listing may be late: only a run of which nothing at all is there needs no word that it is forgotten. What is
    # there when that word is not written belongs to someone who began since.
    kept = [] if numbers else [key for place in run.places() for key, _ in place.names(run.base)]
    if not numbers and not kept:
        return
    made_by = (attempt_of(part) for key in kept for part in key[len(run.base) + 1 :].split("/")[1:3])
    numbers = numbers or sorted(number for number in made_by if number is not None)
    while True:
        number = run.may_take(_next_number(run, numbers))
        claim = Claim(
            attempt=number,
            id=os.urandom(8).hex(),
            host=os.uname().nodename,
            time=utc_now(),
            since=number,
            failures=0,
            interruptions=0,
            seconds=0.0,
            forget=True,
        )
        run.probe()
        if run.create(run.attempt_key(number), run.pack(claim, run.attempt_key(number))):
            break
        numbers = run.numbers()
    remove_before(run, number)


def _is_signed(run: RunRecords, number: int) -> bool:
    try:
        claim = run.read_claim(number)
    except (Corrupt, UnknownFormat):
        return False
    return claim is not None and claim.signed


def _next_number(run: RunRecords, numbers: list[int]) -> int:
    """The number after the last. With keys, after the last that is signed: others may be as high as anybody likes."""
    if run.keys is None or not numbers:
        return numbers[-1] + 1 if numbers else 1
    return attempts.History(attempts.read_history(run).last, attempts.Counts(), None, None, taken=numbers).next
