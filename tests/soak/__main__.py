"""`python -m tests.soak --minutes 60 --json soak.json`"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.soak.run import Report, Say, soak, write


def main() -> int:
    parser = argparse.ArgumentParser(description="Put a server under mixed load; nothing it keeps may grow for ever.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to a file")
    options = parser.parse_args()
    say = partial(print, flush=True)
    with tempfile.TemporaryDirectory(prefix="rota-soak-") as folder:
        report = asyncio.run(_run(Path(folder) / "home", options.minutes * 60, say))
    if options.json is not None:
        write(options.json, report)
    for line in report.table():
        say(line)
    say(f"done {report.done}; restarts {report.restarts}; rounds that failed {report.troubles}")
    faults = [f"it grew: {growth}" for growth in report.grown]
    faults += [f"a stream came to nothing: {name}" for name in report.idle]
    say("\n".join(faults) or "nothing grew")
    return 1 if faults else 0


async def _run(home: Path, seconds: float, say: Say) -> Report:
    running = asyncio.current_task()
    assert running is not None
    for one in (signal.SIGINT, signal.SIGTERM):
        # Also in the background of a script, where interrupts are ignored: what was started is stopped.
        asyncio.get_running_loop().add_signal_handler(one, running.cancel)
    return await soak(home, seconds, say)


if __name__ == "__main__":
    sys.exit(main())
