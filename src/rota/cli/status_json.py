"""How the server of a home is, for programs: one JSON value, in which names do not change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.server.background_log import log_of

if TYPE_CHECKING:
    from rota.cli.status import Counted
    from rota.server.background_state import Found, State


def as_json(
    path: Path, found: Found, isolation: str, work: dict[str, Counted] | str | int, disk: dict[str, Any]
) -> str:
    """`work`: what a running server has, or why that is not known; without a server, how many processes go on.

    `disk`: what a running server says of its disk.
    """
    said: dict[str, Any] = {"server": found.condition, "home": str(path), "log": str(log_of(path))}
    if found.pid:
        said["pid"] = found.pid
    if found.state is not None:
        said |= _of_server(found.state)
    if isinstance(work, int):
        said["processes"] = work
    else:
        said |= {"isolation": isolation, "kubeconfig": str(path / "kubeconfig")}
    if disk:
        said["disk"] = disk
    if isinstance(work, str):
        said["workUnknown"] = work
    elif isinstance(work, dict):
        said["work"] = {kind: one._asdict() for kind, one in work.items()}
    return json.dumps(said, indent=2, ensure_ascii=False)


def _of_server(state: State) -> dict[str, Any]:
    started = datetime.fromtimestamp(state.started, UTC)
    return {
        "version": state.version,
        "started": f"{started:%Y-%m-%dT%H:%M:%SZ}",
        "url": state.url,
        "edge": state.edge,
        "host": state.options.host,
        "image": state.image,
        "network": state.options.network,
        "egress": list(state.options.egress),
    }
