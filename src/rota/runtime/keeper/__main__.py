"""`python -m rota.runtime.keeper HOME`: start the keeper of a home and print `ready` once it accepts connections."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

from rota.runtime.descriptors import restore
from rota.runtime.keeper import protocol
from rota.runtime.keeper.leftovers import AlreadyRuns, CannotStart
from rota.runtime.keeper.process import TREES, KeeperProcess

_LOG_BYTES_MAX = 1024 * 1024
_REPORT_BYTES_MAX = 4096
_READY = b"\0ready\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="rota.runtime.keeper", description="Own the processes of one home.")
    parser.add_argument("home", type=Path, help="the folder of the home")
    parser.add_argument("--orphan-seconds", type=float, default=protocol.ORPHAN_SECONDS, help="end without a server")
    parser.add_argument("--die-with", type=int, metavar="PID", help="stop everything and end when that process ends")
    parser.add_argument("--tree", choices=TREES, help="how to hold process trees; without it, the best that works")
    parser.add_argument(
        "--no-controllers", action="store_true", help="hold limits without cgroups, as other hosts must"
    )
    parser.add_argument("--nofile", type=int, metavar="COUNT", help="the soft limit of descriptors of what it runs")
    options = parser.parse_args()
    if options.nofile is not None:
        restore(options.nofile)
    report, report_write = os.pipe()
    # Fork twice, so that the keeper has no parent: neither a hang-up nor the end of a process group reaches it.
    if os.fork():
        os.close(report_write)
        _relay(report)
    os.close(report)
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        keeper = KeeperProcess(
            options.home.absolute(),
            options.orphan_seconds,
            options.tree,
            options.die_with,
            has_controllers=not options.no_controllers,
        )
    except AlreadyRuns as error:
        _fail(report_write, protocol.EXIT_ALREADY_RUNS, str(error))
    except (CannotStart, OSError) as error:
        _fail(report_write, protocol.EXIT_CANNOT_START, str(error))
    os.write(report_write, _READY)
    os.close(report_write)
    _leave(options.home.absolute() / "keeper" / "keeper.log")
    # What is allocated now lives as long as the process. Frozen, its pages stay shared with the forks.
    gc.freeze()
    keeper.run()


def _relay(report: int) -> NoReturn:
    """Relay the keeper's report of its start, as text and as an exit code."""
    said = b""
    while not said.endswith(b"\n") and (data := os.read(report, _REPORT_BYTES_MAX)):
        said += data
    code, message = (said[0], said[1:].decode()) if said else (protocol.EXIT_CANNOT_START, "the keeper died\n")
    print(message, end="", flush=True, file=sys.stderr if code else sys.stdout)
    sys.exit(code)


def _fail(report_write: int, code: int, message: str) -> NoReturn:
    os.write(report_write, bytes([code]) + message.encode().replace(b"\n", b" ") + b"\n")
    sys.exit(code)


def _leave(log: Path) -> None:
    """Release the caller's folder and terminal. From here on, the keeper's output goes to its log."""
    os.chdir("/")
    os.umask(0o077)
    if log.exists() and log.stat().st_size > _LOG_BYTES_MAX:
        log.unlink()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream, target in ((0, null), (1, output), (2, output)):
        os.dup2(target, stream)
    os.close(null)
    os.close(output)


if __name__ == "__main__":
    main()
