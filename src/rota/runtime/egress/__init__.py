"""The only way out of a sandbox with `network: egress`: a proxy of its own that dials what is on a list.

- *No other way.* The sandbox has a network namespace of its own, with a loopback and nothing else. Before the first
  instruction of a tenant, the stage listens at one port of that loopback and passes the socket out; the proxy, a
  process of the host, accepts on it. The tenant cannot close the socket, and nobody else can reach it.
- *One per sandbox.* It is started by the command that makes the sandbox, whoever runs that, and ends with it: nothing
  has to be supervised, it survives restarts of the server, and a tenant that overloads it disturbs no other. It belongs
  to the instance's process tree and counts towards its limits; where Rota is root, it has the instance's uid.
- *Checked, then dialled.* It resolves a name once, and only if the list has it; it checks every address, and dials
  the address that it has checked. Addresses of the host, of its link and of metadata are refused, but for a range that
  names them.
- *One answer.* A refused host, a name that cannot be resolved and a silent server look the same inside. The reason is
  written to a file of the host, for the owner.
- *Bounded.* Connections, bytes of a request's head, seconds of each step, and the refusals that are kept have limits.

It speaks HTTP: CONNECT, and plain requests. It does not inspect connections: a tenant that may reach a server reaches
all that this server serves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rota.api.egress import Target
from rota.runtime.egress import program

__all__ = ["PORT", "environment", "launched"]

PORT = 61080
"""The port of the proxy on the sandbox's loopback, above those that the kernel assigns by itself."""
URL = f"http://127.0.0.1:{PORT}"
DIRECT = "localhost,127.0.0.1,::1"


def environment() -> dict[str, str]:
    """Return the variables by which programs in a sandbox find its proxy."""
    named = {"HTTP_PROXY": URL, "HTTPS_PROXY": URL, "ALL_PROXY": URL, "NO_PROXY": DIRECT}
    return {**named, **{name.lower(): value for name, value in named.items()}}


def launched(scratch: Path, targets: Sequence[Target], descriptor: int, uid: int | None) -> list[str]:
    """Write the targets of a proxy, and return the command that starts it; the command of the sandbox follows it.

    The stage finds its end of the connection to the proxy at `descriptor`.
    """
    written = json.dumps([target.entry() for target in targets])
    (scratch / program.TARGETS).write_text(written, encoding="ascii")
    python = [os.path.realpath(sys.executable), "-I", "-S", program.__file__]
    return [*python, str(scratch), str(descriptor), "" if uid is None else str(uid)]
