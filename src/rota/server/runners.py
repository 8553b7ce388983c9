"""`/v1/stream`: how runners come in, each as its own instance and as nothing else."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path

from rota.api import Instance
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.runtime.interface import Subject
from rota.runtime.runner.messages import PROTOCOL
from rota.runtime.runners import Runners
from rota.server.auth import User, write_private
from rota.server.upgrade import Upgrade

KEY_BYTES = 32
PREFIX = "rota-worker-"


class RunnerTokens:
    """Tokens of scope worker. Nothing is kept of them: one is good for as long as the instance that it names is there.

    A token is the instance's namespace, name and uid with a signature that only this server can make.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            write_private(path, secrets.token_bytes(KEY_BYTES))
        self._key = path.read_bytes()

    def of(self, subject: Subject) -> str:
        return f"{PREFIX}{'/'.join(subject)}/{self._signature(subject)}"

    def user(self, secret: str) -> User | None:
        """Whose token this is; None when this server did not make it."""
        parts = secret.removeprefix(PREFIX).split("/")
        if not secret.startswith(PREFIX) or len(parts) != len(Subject._fields) + 1:
            return None
        subject = Subject(*parts[:-1])
        if not hmac.compare_digest(parts[-1].encode(), self._signature(subject).encode()):
            return None
        return User(subject.name, "worker", subject.namespace, subject.uid)

    def _signature(self, subject: Subject) -> str:
        return hmac.new(self._key, "/".join(subject).encode(), hashlib.sha256).hexdigest()


def stream(runners: Runners, objects: Objects, user: User, namespace: str, name: str) -> Upgrade:
    """The stream of one instance's runner."""
    if user.scope != "worker" or (user.namespace, user.name) != (namespace, name):
        raise ApiError(403, "Forbidden", f'User "{user.name}" is not the worker {namespace}/{name}')
    instance = get(objects, Instance, name, namespace)
    if instance is None or instance.metadata.uid != user.token_id:
        raise ApiError(404, "NotFound", f'the instance "{name}" that this worker is of is not there any more')
    subject = Subject(namespace, name, user.token_id)
    return Upgrade(lambda socket: runners.serve(subject, socket), PROTOCOL)
