"""Runs a program of the server in a network namespace of its own, whose only way out is a proxy.

    python -I -S inner.py DESCRIPTOR:PORT ARGV…

Passes a socket that listens in here to the proxy, at the other end of the descriptor, and executes the program.
"""

from __future__ import annotations

import importlib.util
import os
import sys

STAGE = "../sandbox/stage.py"
"""The program whose `hand_out` does the same in a sandbox."""


def main() -> None:
    way, *argv = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("stage", os.path.join(os.path.dirname(__file__), STAGE))
    assert spec is not None and spec.loader is not None
    stage = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stage)
    stage.hand_out(*map(int, way.split(":")))
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
