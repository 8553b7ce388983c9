"""The one function that makes the command of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.api.egress import Network, Target
from rota.runtime.sandbox.availability import require
from rota.runtime.sandbox.compose import Bind, Command, Plan, compose

__all__ = ["Bind", "Command", "command"]


def command(
    argv: Sequence[str],
    *,
    scratch: Path,
    storage: Bind | None = None,
    read_only: Sequence[Bind] = (),
    files: Mapping[str, bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    network: Network = "none",
    targets: Sequence[Target] = (),
    uid: int | None = None,
    hostname: str = "worker",
    hide: Sequence[Path] = (),
    fds: Sequence[int] = (),
    is_init: bool = False,
) -> Command:
    """Return the command that runs `argv` in a sandbox of its own.

    scratch    a folder of the host for the sandbox's own files; emptied here, kept while it runs, not visible inside
    storage    the folder that it may write to, and its path inside, which is also the home
    read_only  further files and folders of the host that it sees
    files      contents of small files that only it can read (0400), by their paths inside
    env        its environment, on top of a minimal one; nothing is inherited
    cwd        its working directory; None: its home
    network    "none": a loopback of its own; "egress": also a proxy, which dials `targets`; "host": the host's network
    uid        the uid of its own, which `storage` already belongs to; given if, and only if, Rota is root
    hide       paths of the host that must stay hidden, even inside a folder that is shown; above all `$ROTA_HOME`
    fds        descriptors that it keeps, besides the standard ones
    is_init    the command can be pid 1 of its namespace: it reaps orphans, and cannot be traced. If Rota is not
               root, it becomes pid 1

    Raises SandboxUnavailable if this host cannot make a sandbox, ValueError if the arguments would make it leak.
    """
    require()
    return compose(
        Plan(
            argv=argv,
            scratch=scratch,
            storage=storage,
            read_only=read_only,
            files=files or {},
            env=env or {},
            cwd=cwd,
            network=network,
            uid=uid,
            hostname=hostname,
            hide=hide,
            fds=fds,
            targets=targets,
            is_init=is_init,
        )
    )
