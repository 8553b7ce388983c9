"""Print the state of a home's server as one JSON value. Its names do not change between versions."""

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
    """Encode the state of a home's server.

    `work`: the objects of a running server, or the reason why they are unknown; without a server, the number of
    processes
    that go on. `disk`: the server's report about its disk."""
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
