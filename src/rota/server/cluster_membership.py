"""The membership of a cluster in a hub. It is a Secret of the cluster, so that every operator is the same cell."""

from __future__ import annotations

import base64

import msgspec

from rota.api import Namespace, ObjectMeta, Secret
from rota.client import Client
from rota.registry import ApiError
from rota.registry.system import SYSTEM_NAMESPACE
from rota.server.membership import Kept, Membership, NotJoined, admitted, renewed_membership

NAME = "rota-membership"
TRIES_MAX = 10


class ClusterMember:
    """The Secret, accessed through the cell's own API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self) -> Kept | None:
        found = await self._find()
        return _kept(found) if found is not None else None

    async def boot(self) -> Kept:
        for _ in range(TRIES_MAX):
            found = await self._find()
            if found is None:
                raise NotJoined(f"Secret {SYSTEM_NAMESPACE}/{NAME} is gone: this cluster has to join its hub again")
            kept = _kept(found)
            kept.membership.boots += 1
            try:
                await self._client.update(_filled(found, kept))
            except ApiError as error:
                if error.code != 409:
                    raise
                continue
            return kept
        raise NotJoined(f"Secret {SYSTEM_NAMESPACE}/{NAME} is changed by others all the time")

    async def keep(self, kept: Kept) -> None:
        found = await self._find()
        if found is not None:
            # Another operator may have counted its start meanwhile.
            boots = max(kept.membership.boots, _kept(found).membership.boots)
            membership = msgspec.structs.replace(kept.membership, boots=boots)
            await self._client.update(_filled(found, kept._replace(membership=membership)))
            return
        await ensure_namespace(self._client, SYSTEM_NAMESPACE)
        await self._client.create(_filled(Secret(metadata=ObjectMeta(name=NAME, namespace=SYSTEM_NAMESPACE)), kept))

    async def join(self, *, cell: str, city: str, hub: str, authority: str, token: str) -> Membership:
        """Join a hub, and store the membership. Raises NotJoined."""
        before = await self.read()
        known = before.membership if before is not None else None
        if known is not None and (known.cell, known.city) != (cell, city):
            raise NotJoined(
                f'this cluster is cell "{known.cell}" in {known.city} already: Secret {SYSTEM_NAMESPACE}/{NAME}'
            )
        kept = await admitted(renewed_membership(known, cell, city, hub), authority, token)
        await self.keep(kept)
        return kept.membership

    async def _find(self) -> Secret | None:
        try:
            return await self._client.get(Secret, NAME, namespace=SYSTEM_NAMESPACE)
        except ApiError as error:
            if error.code != 404:
                raise
            return None


async def ensure_namespace(client: Client, name: str) -> None:
    """Create a namespace unless it exists."""
    try:
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def _filled(secret: Secret, kept: Kept) -> Secret:
    membership = msgspec.json.encode(kept.membership)
    values = {"membership": membership, "token": kept.token.encode(), "authority": kept.authority.encode()}
    return msgspec.structs.replace(
        secret, data={name: base64.b64encode(value).decode() for name, value in values.items()}
    )


def _kept(secret: Secret) -> Kept:
    try:
        values = {name: base64.b64decode(value) for name, value in secret.data.items()}
        membership = msgspec.json.decode(values["membership"], type=Membership)
        return Kept(membership, values["token"].decode(), values["authority"].decode())
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise NotJoined(f"Secret {SYSTEM_NAMESPACE}/{NAME} is damaged: {error}; delete it, and join again") from None
