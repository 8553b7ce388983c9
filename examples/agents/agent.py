"""A small agent: it reads a prompt, works on the repository, and reports its result.

Any program can be an agent. Its standard input is the prompt, its working directory the tree. A line `::rota output
NAME=VALUE` makes an output, which tasks that depend on this one can use.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

WORK_SECONDS = 0.3
AUTHOR = {"GIT_AUTHOR_NAME": "agent", "GIT_AUTHOR_EMAIL": "agent@rota.example"}


def git(*arguments: str) -> str:
    identity = {**AUTHOR, **{name.replace("AUTHOR", "COMMITTER"): value for name, value in AUTHOR.items()}}
    done = subprocess.run(
        ["git", *arguments], env={**os.environ, **identity}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def main() -> None:
    prompt = sys.stdin.read().strip()
    task, branch = os.environ["ROTA_TASK"], os.environ.get("ROTA_BRANCH")
    print(f"{task}: {prompt}", flush=True)
    if branch:
        git("checkout", "--quiet", "-B", branch)
    time.sleep(WORK_SECONDS)
    notes = Path("notes") / f"{task}.md"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text(f"# {task}\n\n{prompt}\n", encoding="utf-8")
    git("add", "notes")
    git("commit", "--quiet", "--message", prompt.splitlines()[0][:72])
    print(f"::rota output commit={git('rev-parse', '--short', 'HEAD')}")
    print(f"::rota result {task} is done")


if __name__ == "__main__":
    main()
