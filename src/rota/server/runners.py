"""`/v1/stream`: how runners come in, each as its own instance and as nothing else."""

from __future__ import annotations

from rota.api import Instance
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import PROTOCOL
from rota.runtime.runners import Runners
from rota.server.auth import User
from rota.server.upgrade import Upgrade


def stream(runners: Runners, objects: Objects, user: User, namespace: str, name: str) -> Upgrade:
    """The stream of one instance's runner."""
    instance = get(objects, Instance, name, namespace)
    if instance is None or instance.metadata.uid != user.token_id:
        raise ApiError(404, "NotFound", f'the instance "{name}" that this worker is of is not there any more')
    subject = Subject(namespace, name, user.token_id)
    return Upgrade(lambda socket: runners.serve(subject, socket), PROTOCOL)
