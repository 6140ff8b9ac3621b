"""Why a program failed, from its exit code, its last words and the memory controller."""

from __future__ import annotations

import errno
import re

from gpuflow.runtime.ending import Ending
from gpuflow.runtime.evidence import Evidence, Verdict, judge
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_HARDWARE_XIDS = "46|48|61|62|63|64|69|74|79|92|94|95|109|119|120|140|143"
WORDS = (
    # A fault of the machine is nobody's failure: it costs an interruption, and the next node may be sound.
    (INTERRUPTED, "the GPU failed", rf"NVRM: Xid \(PCI:[^)]*\): ({_HARDWARE_XIDS})\b"),
    (INTERRUPTED, "the GPU failed", r"uncorrectable ECC error|GPU has fallen off the bus|cudaErrorECCUncorrectable"),
    (INTERRUPTED, "the GPU failed", r"GPU is lost|hardware stack error|uncorrectable NVLink error"),
    (RETRYABLE, "the GPU is out of memory", r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    (RETRYABLE, "the GPU is out of memory", r"torch\.(cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory"),
    (RETRYABLE, "NCCL communication failed", r"Watchdog caught collective operation timeout|DistBackendError"),
    (RETRYABLE, "NCCL communication failed", r"nccl(System|Internal|Remote|UnhandledCuda)Error|NCCL error"),
    (RETRYABLE, "a driver library is missing on the node", r"(ImportError|OSError): lib(cuda|nvidia)[\w.-]*\.so"),
)
"""Found anywhere in the last words, tried from the top."""
IMPORT_ERROR = re.compile(r"^(ModuleNotFoundError|ImportError): .*$", re.MULTILINE)
_NOT_RUN = re.compile(
    r"(command not found|: not found|No such file or directory|Permission denied|Exec format error|cannot execute)\s*$"
)
"""A shell's words for a command that it could not run."""


def diagnose(
    code: int,
    last_words: str,
    oom_kills: int,
    final_exit_codes: Iterable[int] = (),
    retryable_exit_codes: Iterable[int] | None = None,
) -> Verdict:
    """What became of a command that ended with a code other than 0 and was not told to stop."""
    verdict = judge(
        Evidence(exit_code=_own(code), container_reason="OOMKilled" if oom_kills and code == 137 else None),
        final_exit_codes=final_exit_codes,
        retryable_exit_codes=retryable_exit_codes,
    )
    assert verdict is not None
    if verdict.outcome == OUT_OF_MEMORY:
        return verdict
    if oom_kills and verdict.outcome == RETRYABLE:
        return Verdict(OUT_OF_MEMORY, "a process of it was killed for memory")
    if verdict.outcome == FINAL:
        return verdict
    if code == 143 and verdict.outcome == INTERRUPTED:
        # The table's words are of a pod that was told. Here the supervisor would know.
        verdict = Verdict(INTERRUPTED, "so ends a program after SIGTERM, though its supervisor did not tell it to stop")
    for outcome, because, pattern in WORDS:
        if re.search(pattern, last_words):
            return Verdict(outcome, because)
    ending = last_words.rstrip().rpartition("\n")[2]
    if code == 1 and IMPORT_ERROR.match(ending):
        return Verdict(FINAL, f"the image lacks something: {ending}")
    if code in (126, 127) and _NOT_RUN.search(ending):
        return Verdict(FINAL, f"the command cannot be run: {ending}")
    return verdict


_PASSING = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETXTBSY, errno.ETIMEDOUT}
)
"""Why a command cannot be started just now: the machine is short of something, or its disk does not answer."""


def cannot_start(command: str, refusal: OSError) -> Ending:
    """The ending of a command that the kernel would not start: a shell's exit code, and final unless it may pass."""
    import shutil

    missing = refusal.errno == errno.ENOENT
    why = refusal.strerror or str(refusal)
    if missing and shutil.which(command) is not None:
        why += "; the file is there, so its interpreter (the first line of a script) or its loader is what is missing"
    outcome = RETRYABLE if refusal.errno in _PASSING else FINAL
    return Ending(outcome, f"the command cannot be started: {command}: {why}", 127 if missing else 126)


def _own(code: int) -> int:
    """The program's code where it says nothing about the supervisor's."""
    return 1 if code in (75, 78, 79) else code
