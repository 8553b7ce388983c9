"""The one way into a sandbox."""

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
    """The command that runs `argv` in a sandbox of its own.

    scratch    a folder of the host for what the sandbox is made of; made anew, kept while it runs, never seen inside
    storage    the folder it may write to, and the place it has inside, which is its home too
    read_only  what else of the host it sees
    files      small files, readable by it alone (0400), by the place they have inside
    env        its environment, on top of a minimal one; nothing is inherited
    cwd        where it starts; else in its home
    network    "none": its own loopback and nothing more; "egress": and a proxy, which dials `targets`; "host": all
               that the host has
    uid        the uid of its own, which `storage` already belongs to; wanted if, and only if, Rota is root
    hide       places that must not be seen, should they lie in something that is shown; `$ROTA_HOME` above all
    fds        descriptors it keeps, besides the standard ones
    is_init    the command can be the first process of its namespace: it reaps orphans, and cannot be traced. It is
               that where Rota is not root

    Raises SandboxUnavailable when this host cannot make a sandbox, ValueError when what is asked for would make a hole.
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
