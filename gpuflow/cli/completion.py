"""`gpuflow completion bash|zsh|fish`. Made from the commands' own parsers, so it cannot lag behind them."""

from __future__ import annotations

import argparse

from gpuflow.cli.commands import COMMANDS, parser_for
from gpuflow.cli.terminal import put

EXAMPLE = """gpuflow completion bash > ~/.local/share/bash-completion/completions/gpuflow
gpuflow completion zsh > "${fpath[1]}/_gpuflow"
gpuflow completion fish > ~/.config/fish/completions/gpuflow.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    put({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]())
    return 0


def words_of(name: str) -> tuple[list[str], list[str]]:
    """Options and fixed words (sub-commands, choices) of a command."""
    options: list[str] = []
    words: list[str] = []
    waiting = [parser_for(name)]
    while waiting:
        for action in waiting.pop()._actions:
            options += [option for option in action.option_strings if option.startswith("--")]
            if isinstance(action, argparse._SubParsersAction):
                words += action.choices
                waiting += action.choices.values()
            elif not action.option_strings and action.choices:
                words += [str(choice) for choice in action.choices]
    return sorted(set(options)), sorted(set(words))


def _words_by_command() -> dict[str, str]:
    return {name: " ".join((*words, *options)) for name in COMMANDS for options, words in [words_of(name)]}


def _bash() -> str:
    cases = "\n".join(f'    {name}) words="{words}" ;;' for name, words in _words_by_command().items())
    return f"""# bash completion for gpuflow
_gpuflow() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words="{" ".join(COMMANDS)} --help --version"
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
}}
complete -o filenames -F _gpuflow gpuflow
"""


def _zsh() -> str:
    commands = "\n".join(f"    '{name}:{summary}'" for name, summary in COMMANDS.items())
    cases = "\n".join(f"    {name}) compadd -- {words}; _files ;;" for name, words in _words_by_command().items())
    return f"""#compdef gpuflow
_gpuflow() {{
  local -a commands
  commands=(
{commands}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case "$words[2]" in
{cases}
  esac
}}
_gpuflow "$@"
"""


def _fish() -> str:
    lines = ["# fish completion for gpuflow"]
    for name, summary in COMMANDS.items():
        lines.append(f"complete -c gpuflow -n __fish_use_subcommand -a {name} -d '{summary}'")
        options, words = words_of(name)
        seen = f"'__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c gpuflow -n {seen} -l {option[2:]}" for option in options]
        if words:
            lines.append(f"complete -c gpuflow -n {seen} -a '{' '.join(words)}'")
    return "\n".join(lines) + "\n"
