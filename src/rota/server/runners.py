"""`/v1/stream`: connections of runners, each as its own instance."""

from __future__ import annotations

from collections.abc import Mapping

from rota.api import Instance
from rota.client.websocket import handshake
from rota.engine.objects import Objects, get
from rota.registry.errors import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import PROTOCOL
from rota.runtime.runners import Runners
from rota.server.auth import User
from rota.server.upgrade import Upgrade


def stream(
    runners: Runners, objects: Objects, user: User, namespace: str, name: str, headers: Mapping[str, str]
) -> Upgrade:
    """Open the stream of an instance's runner.

    A runner of another version is refused, because it is older than an upgrade of the server. The controller of its
    instance ends it and starts a new one.
    """
    instance = get(objects, Instance, name, namespace)
    if instance is None or instance.metadata.uid != user.token_id:
        raise ApiError(404, "NotFound", f'the instance "{name}" that this worker is of is not there any more')
    subject = Subject(namespace, name, user.token_id)
    offered = handshake.offered(headers)
    if PROTOCOL not in offered:
        runners.turn_away(subject)
        spoken = ", ".join(offered) or "no protocol"
        raise ApiError(400, "BadRequest", f"this server speaks {PROTOCOL}, the runner {spoken}: it is started anew")
    return Upgrade(lambda socket: runners.serve(subject, socket), PROTOCOL)
