"""The command line: what people type, and what they read.

Promises: results on standard output, everything else on standard error; colour on a terminal only, and not where
`NO_COLOR` is set; exit codes 0 (done), 1 (refused or failed) and 2 (bad usage or invalid manifests); an error says what
to do next; nothing is applied before everything is known to be valid.

Never: holds semantics of its own, asks a question where nobody can answer, imports more than a command needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

INTERRUPTED = 130

if TYPE_CHECKING:
    from rota.cli.session import Connect


def main(argv: Sequence[str] | None = None, *, connect: Connect | None = None) -> int:
    """Run a command line. Returns the exit code. `connect` replaces the connection to the server that is meant."""
    try:
        from rota.cli.app import run

        return run(list(sys.argv[1:] if argv is None else argv), connect)
    except KeyboardInterrupt:
        return INTERRUPTED
