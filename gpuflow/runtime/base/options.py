"""The options of `gpuflow-run`: one table; each also by a variable `GPUFLOW_RUN_<OPTION>`. The command line wins.

Read by hand rather than with argparse, which takes longer to load than the rest of the supervisor together.
"""

from __future__ import annotations

from gpuflow.runtime.base import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

ENGINES = ("argo", "airflow", "kubeflow", "none")
DEFAULT_TERMINATION_LOG = "/dev/termination-log"
VARIABLE_PREFIX = "GPUFLOW_RUN_"
OUTPUT_TYPES = ("string", "int", "float", "bool", "json", "file", "directory")


class BadOption(Exception):
    """A configuration the supervisor cannot work with: exit code 78."""


class Option:
    """One line of the table: name, how it is read, its default, and what it says in the help."""

    def __init__(self, name: str, kind: str, metavar: str, default: Any, text: str) -> None:
        self.name, self.kind, self.metavar, self.default, self.text = name, kind, metavar, default, text

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.field.upper()


TABLE = (
    Option("pipeline", "text", "NAME", "default", "the pipeline, first part of the run's identity"),
    Option("step", "text", "NAME", "default", "the step, part of the identity"),
    Option("run-id", "text", "ID", None, "the run; attempts with the same identity resume each other"),
    Option("task", "text", "NAME", None, "the engine's name of the task, part of the identity without its (ATTEMPT)s"),
    Option("item", "text", "KEY", None, "the fan-out item, when the step is one of several copies"),
    Option("checkpoint-dir", "text", "DIR", None, "where the program saves and resumes"),
    Option("own-folder", "flag", "", False, "work in a folder of DIR that is this run's, step's and item's own"),
    Option("store", "text", "DIR|URL", None, "where checkpoints are kept: a directory, s3://, gs:// or az://"),
    Option("state", "text", "DIR|URL", None, "where budgets and the success marker are kept; the store when not given"),
    Option("follow", "list", "DIR", (), "links in a checkpoint to files below DIR are kept as files; may be repeated"),
    Option("key-file", "text", "FILE", None, "keys that sign what is kept, one per line; unsigned is not believed"),
    Option("every", "every", "10m|auto", "auto", "how often a checkpoint is kept"),
    Option("keep", "count", "N", 2, "how many checkpoints are kept in the store"),
    Option("grace", "span", "30s", 30.0, "time from SIGTERM to SIGKILL, the upload included"),
    Option("resume-env", "text", "NAME", None, "one more variable that names the checkpoint to resume from"),
    Option("marker", "text", "NAME", ".gpuflow-complete", "a file that makes the directory holding it a checkpoint"),
    Option("mtbf", "span", "4h", 14400.0, "mean time between interruptions, the first guess of --every auto"),
    Option("bandwidth", "size", "BYTES", None, "most bytes a second an upload may use, like 200M"),
    Option("failures", "natural", "N", None, "how often a failed attempt may be followed by another"),
    Option("interruptions", "natural", "N", None, "how often an interrupted attempt may be followed by another"),
    Option("retries", "natural", "N", None, "how often it may be started again, whatever ended it; instead of the two"),
    Option("repeat", "flag", "", False, "start the command again in this container after a failure the budget allows"),
    Option("backoff", "span", "30s", 0.0, "how long --repeat waits before it starts the command again"),
    Option("backoff-factor", "count", "N", 2, "each wait of --repeat is so many times the one before"),
    Option("backoff-max", "span", "10m", None, "no wait of --repeat is longer"),
    Option("final-exit-codes", "codes", "2,3", (), "exit codes that end the step for good"),
    Option("retryable-exit-codes", "codes", "1,9", None, "when given, all other exit codes end the step for good"),
    Option("after-success", "choice:skip,again", "skip|again", "skip", "what a start after the success marker does"),
    Option("after-final", "choice:stop,renew", "stop|renew", "stop", "what a start after exit code 79 does"),
    Option("output", "list", "NAME[:TYPE][=PATH]", (), "an output of the step; may be repeated"),
    Option("artifact", "list", "NAME=URI", (), "where a file or directory output is kept; may be repeated"),
    Option("artifacts", "text", "DIR|URL", None, "where files and directories without a URI of their own are kept"),
    Option("input", "list", "PATH=URI|[URI,…]", (), "what lies at PATH before the command starts; may be repeated"),
    Option("input-type", "list", "PATH=file|directory", (), "what data from outside is [directory]; may be repeated"),
    Option("input-digest", "list", "PATH=sha256:HEX", (), "what an input must add up to; may be repeated"),
    Option("deliver", "list", "NAME=PATH", (), "one more place where an output's value is put; may be repeated"),
    Option("output-kind", "list", "NAME=KIND", (), "what an output is: dataset, model, metrics, html and so on"),
    Option("hand-over", "list", "NAME", (), "an output whose files Kubeflow keeps too, for its own components"),
    Option("kubeflow", "text", "JSON", None, "what KFP's launcher says of the task; artifacts are then told to it"),
    Option("engine", "choice:" + ",".join(ENGINES), "|".join(ENGINES), "none", "which engine looks for the outputs"),
    Option("outputs-dir", "text", "DIR", None, "where outputs are written; $GPUFLOW_OUTPUTS"),
    Option("timeout", "span", "2h", None, "how long the command may run; then it is told to stop: a failure, 124"),
    Option("gang", "count", "N", None, "how many ranks work together: all start, all stop, one outcome"),
    Option("gang-port", "count", "PORT", 29501, "where rank 0 of a gang listens for the others"),
    Option("gang-timeout", "span", "10m", 600.0, "how long the ranks of a gang wait for each other"),
    Option("sharded", "flag", "", False, "checkpoints of a gang have a part from each rank: all of them are kept"),
    Option("rank-offset", "natural", "N", 0, "added to $GPUFLOW_RANK: 1 for workers beside a leader"),
    Option("mpi", "natural", "SLOTS", None, "rank 0 of the gang runs mpirun, which may start SLOTS processes here"),
    Option("engine-attempt", "text", "N", None, "the engine's own number of this attempt"),
    Option("last", "text", "JSON", None, "what the engine knows of the attempt before, and of how it ended"),
    Option("storage-timeout", "span", "60s", 60.0, "how long storage may fail at the start and at the end"),
    Option("progress-file", "text", "FILE", None, "where the program's progress is written; $ARGO_PROGRESS_FILE"),
    Option("termination-log", "text", "FILE", DEFAULT_TERMINATION_LOG, "where Kubernetes looks for the last words"),
)


class Options:
    """The options as attributes, `run_id` for `--run-id`, and the command."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, values: Mapping[str, Any], command: Sequence[str]) -> None:
        self.__dict__.update(values)
        self.command = list(command)


def parse(arguments: Sequence[str], environ: Mapping[str, str], table: Sequence[Option] = TABLE) -> Options:
    """Options from the words before `--` and from the environment; the command is what follows."""
    words = list(arguments)
    command = words[words.index("--") + 1 :] if "--" in words else []
    given = _words(words[: words.index("--")] if "--" in words else words, {option.name: option for option in table})
    values: dict[str, Any] = {}
    for option in table:
        texts = given.get(option.name)
        source = f"--{option.name}"
        if texts is None and environ.get(option.variable):
            source = option.variable
            text = environ[option.variable]
            texts = [line for line in text.split("\n") if line] if option.kind == "list" else [text]
        values[option.field] = option.default if texts is None else _value(option, texts, source)
    return Options(values, command)


def check(options: Options) -> None:
    """What no single option can see."""
    if not options.command:
        raise BadOption("there is no command; write it after --")
    keeps = options.store or options.state
    if keeps and not options.run_id:
        raise BadOption("--store and --state need --run-id: without it two runs would resume each other")
    if options.store and not options.checkpoint_dir:
        raise BadOption("--store needs --checkpoint-dir, the directory the program saves to")
    budgets = {name: getattr(options, name) for name in ("failures", "interruptions", "retries")}
    if options.retries is not None and (options.failures is not None or options.interruptions is not None):
        raise BadOption("--retries is one budget for everything; give it, or --failures and --interruptions")
    if options.repeat and options.failures is None and options.retries is None:
        raise BadOption("--repeat needs --failures or --retries, which say how often")
    # What is repeated here is counted here; who is interrupted counts nothing any more.
    outlives = {"interruptions"} if options.repeat else budgets.keys()
    if not (keeps or options.checkpoint_dir) and any((budgets[name] or 0) > 0 for name in outlives):
        names = " and ".join(f"--{name}" for name, most in budgets.items() if most and name in outlives)
        raise BadOption(f"{names} are counted in a store; give --store or --state")
    if options.gang is not None and options.repeat:
        raise BadOption("--repeat starts one pod's command again, and --gang needs all of them: leave one out")
    if options.sharded and options.gang is None:
        raise BadOption("--sharded is for a gang, whose ranks each write a part; one pod's checkpoints are whole")
    if options.mpi is not None and options.gang is None:
        raise BadOption("--mpi is for a gang, whose rank 0 starts processes on the others; alone, mpirun needs nothing")
    if options.gang_port > 65535:
        raise BadOption(f"--gang-port {options.gang_port} is no port; the last one is 65535")
    both = set(options.final_exit_codes) & set(options.retryable_exit_codes or ())
    if both:
        raise BadOption(f"exit code {min(both)} is both final and retryable; keep it in one list")


def identity_of_options(options: Options) -> str:
    """Where the state lives of the run that the options name."""
    from gpuflow.runtime.base.attempt_folder import identity_path

    return identity_path(options.pipeline, options.run_id or "unnamed", options.step, options.item, options.task)


def family(options: Options, base: str) -> str | None:
    """What this run's attempts share on this machine: the same identity, kept in the same place."""
    from gpuflow.runtime.base import container

    return container.family(base, options.state or options.store or options.checkpoint_dir)


def usage() -> str:
    """The help text, from the table."""
    lines = [
        "usage: gpuflow-run [options] -- command …",
        "       gpuflow-run probe [--ready] [--max-age 10m] [options]",
        "       gpuflow-run forget [options]",
        "       gpuflow-run digest PATH",
        "       gpuflow-run create FILE [options]",
        "       gpuflow-run gang --manifest JSON --run-id ID [options]",
        "",
        "Each option also by a variable GPUFLOW_RUN_<OPTION>.",
        "",
    ]
    return "\n".join([*lines, *table_lines(TABLE)])


def table_lines(table: Sequence[Option]) -> list[str]:
    """One line of help for each option."""
    found = []
    for option in table:
        default = option.default
        text = "" if default in (None, ()) or default is False else f" [{default}]"
        text = f" [{default:g}s]" if isinstance(default, float) else text
        found.append(f"  --{option.name} {option.metavar:<20} {option.text}{text}")
    return found


def _words(words: Sequence[str], known: Mapping[str, Option]) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    rest: Iterator[str] = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name[2:] not in known:
            raise BadOption(f'unknown option "{word}"; the command stands after --, and --help lists the options')
        if not equals and known[name[2:]].kind == "flag":
            value = "yes"
        elif not equals:
            if (following := next(rest, None)) is None:
                raise BadOption(f"{name} needs a value")
            value = following
        option = known[name[2:]]
        given[option.name] = [*given.get(option.name, []), value] if option.kind == "list" else [value]
    return given


def _value(option: Option, texts: list[str], source: str) -> Any:
    text = texts[-1]
    try:
        if option.kind == "list":
            return tuple(texts)
        if option.kind == "text":
            return text or None
        if option.kind == "flag":
            if text.lower() not in ("yes", "true", "1", "no", "false", "0"):
                raise ValueError(f'"{text}" is neither yes nor no')
            return text.lower() in ("yes", "true", "1")
        if option.kind == "span":
            return units.seconds(text)
        if option.kind == "size":
            return units.size(text) or None
        if option.kind == "every":
            return text if text == "auto" else units.seconds(text)
        if option.kind == "codes":
            return tuple(int(code) for code in text.replace(" ", "").split(",") if code)
        if option.kind.startswith("choice:"):
            choices = option.kind.partition(":")[2].split(",")
            if text not in choices:
                raise ValueError(f'"{text}" is not one of {", ".join(choices)}')
            return text
        number = int(text)
        if number < (1 if option.kind == "count" else 0):
            raise ValueError(f"{number} is too small")
        return number
    except ValueError as refusal:
        raise BadOption(f"{source}: {refusal}") from None
