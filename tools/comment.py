"""Write what the Action found as one comment on the pull request, and update that comment ever after.

    python -I tools/comment.py ABOUT PART…

ABOUT tells one use of the Action from another of the same pull request; each PART is a file with Markdown that gpuflow
has written, which a step before may have left out. Standard library only. The token comes as the variable TOKEN, the
rest from the variables of the runner. Whatever GitHub answers, this ends with 0: the verdict stands in the summary too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MOST = 60_000
"""GitHub takes 65,536 characters."""
PAGE = 100
PAGES = 50
"""Comments are looked through up to this many pages."""
TIMEOUT = 30


class Refused(Exception):
    """GitHub did not do it, and why."""


def main(about: str, *parts: str) -> int:
    try:
        pull = _pull_request()
        if pull is None:
            print("this run belongs to no pull request: no comment")
        elif not os.environ.get("TOKEN"):
            _notice("no token is given: no comment is written")
        elif _is_from_a_fork(pull):
            _notice("this pull request comes from a fork, and its token may only read: see the summary of this run")
        else:
            print(_write(pull, about, [Path(part) for part in parts]))
    except Refused as refusal:
        _notice(f"no comment is written: {refusal}; the report is in the summary of this run")
    return 0


def _pull_request() -> dict[str, Any] | None:
    path = os.environ.get("GITHUB_EVENT_PATH")
    if not path:
        return None
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise Refused("the runner's event cannot be read") from None
    pull = event.get("pull_request") if isinstance(event, dict) else None
    return pull if isinstance(pull, dict) else None


def _is_from_a_fork(pull: dict[str, Any]) -> bool:
    """Runs for pull_request get a token that may only read when the change comes from another repository."""
    head = (pull.get("head") or {}).get("repo") or {}  # a fork that was deleted is none
    base = (pull.get("base") or {}).get("repo") or {}
    return os.environ.get("GITHUB_EVENT_NAME") == "pull_request" and head.get("full_name") != base.get("full_name")


def _write(pull: dict[str, Any], about: str, parts: list[Path]) -> str:
    mark = f"<!-- gpuflow {hashlib.sha256(about.encode()).hexdigest()[:12]} -->"
    body = _body(mark, parts)
    repository = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues"
    present = _present(f"{repository}/{int(pull['number'])}/comments", mark)
    if present is None:
        _ask("POST", f"{repository}/{int(pull['number'])}/comments", {"body": body})
        return "wrote a comment on the pull request"
    if present["body"] == body:
        return "the comment on the pull request is up to date"
    _ask("PATCH", f"{repository}/comments/{int(present['id'])}", {"body": body})
    return "updated the comment on the pull request"


def _body(mark: str, parts: list[Path]) -> str:
    texts = [part.read_text(encoding="utf-8").strip() for part in parts if part.is_file()]
    texts = [text for text in texts if text]
    server, repository, run = (os.environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    link = f"[Log and summary of this run]({server}/{repository}/actions/runs/{run})" if server and run else ""
    if sum(map(len, texts)) > MOST:
        texts = [
            text if len(text) <= MOST // len(texts) else f"{text.splitlines()[0]}\n\nToo long for a comment."
            for text in texts
        ]
    return "\n\n".join([mark, *(texts or ["gpuflow has nothing to say."]), *([link] if link else [])])


def _present(path: str, mark: str) -> dict[str, Any] | None:
    """Our comment: it begins with the mark, and was written by a bot or by whom the token belongs to.

    The token may change anybody's comment, and anybody may write the mark.
    """
    owner = _owner()
    for page in range(1, PAGES + 1):
        comments = _ask("GET", f"{path}?per_page={PAGE}&page={page}")
        for comment in comments:
            user = comment.get("user") or {}
            ours = user.get("type") == "Bot" or (owner is not None and user.get("login") == owner)
            if ours and (comment.get("body") or "").startswith(mark):
                return dict(comment)
        if len(comments) < PAGE:
            return None
    return None


def _owner() -> str | None:
    """Whose token it is, when it is a person's; a token of GitHub Actions is nobody's."""
    try:
        return str(_ask("GET", "/user")["login"])
    except Refused:
        return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes to the API and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(method: str, path: str, document: dict[str, Any] | None = None) -> Any:
    request = urllib.request.Request(
        os.environ.get("GITHUB_API_URL", "https://api.github.com") + path,
        method=method,
        data=None if document is None else json.dumps(document).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
            "User-Agent": "gpuflow",
        },
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as refusal:
        rights = " (the job needs permissions: pull-requests: write)" if refusal.code in (403, 404) else ""
        raise Refused(f"GitHub answers {refusal.code}{rights}") from None
    except (OSError, ValueError) as refusal:
        raise Refused(f"GitHub does not answer ({type(refusal).__name__})") from None


def _notice(text: str) -> None:
    print(f"::notice title=gpuflow::{text}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
