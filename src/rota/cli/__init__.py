"""The command line.

- *Two outputs.* Results go to standard output, everything else to standard error.
- *Exit codes.* 0 is success, 1 a refusal or a failure, 2 bad usage or invalid manifests.
- *Colour* is for terminals only, and not where `NO_COLOR` is set. Control characters never reach a terminal.
- *Checked first.* Nothing is applied before all manifests are known to be valid, here and by the server.
- *Fast to start.* A command imports no more than it needs.

Never: has semantics of its own, asks a question where nobody can answer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

INTERRUPTED = 130

if TYPE_CHECKING:
    from rota.cli.session import Connect


def main(argv: Sequence[str] | None = None, *, connect: Connect | None = None) -> int:
    """Run a command line. Returns the exit code. `connect` replaces the connection to the chosen server."""
    try:
        from rota.cli.app import run

        return run(list(sys.argv[1:] if argv is None else argv), connect)
    except KeyboardInterrupt:
        return INTERRUPTED
