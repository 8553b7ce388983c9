"""The membership of a home in a hub: the cell's name, the address of the hub, and the hub's certificate.

It is stored in the home, so that a restarted server is the same cell, whether its hub answers or not.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from rota import __version__
from rota.client import Client
from rota.client.credentials import Credential, Fixed
from rota.client.http import HttpBackend
from rota.client.requests import Sleep
from rota.client.target import KubeconfigError, Target, Tls, at_url
from rota.control.cells.counting import LinkCounting
from rota.control.cells.fence import Fence
from rota.control.cells.link import MIRRORED, About, Link
from rota.control.cells.messages import Answer, Report
from rota.control.cells.names import cell_namespace
from rota.engine import CachedObjects, Objects
from rota.engine.clock import Clock, RealClock
from rota.engine.recorder import Recorder
from rota.registry import ApiError
from rota.server.auth import HomeDamaged, write_private
from rota.server.cell_tunnel import Tunnel
from rota.server.cells import AUTHORITY, FINGERPRINT, Joined, Joining, fingerprint
from rota.server.home import Home

CELL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?")
"""Short enough to be a name with the prefix of its namespace."""
CITY_CODE = re.compile(r"[a-z0-9]{2,10}")


class NotJoined(OSError):  # noqa: N818
    """A cell cannot join. The message says why, and what to do."""


class Membership(msgspec.Struct, rename="camel"):
    """The stored membership."""

    cell: str
    city: str
    hub: str
    """The URL of the hub."""
    identity: str
    """The identity of this home, by which the hub recognises it."""
    boots: int = 0
    renew_at: float = 0.0
    """The time to renew the token, by the wall clock; 0 if it does not expire."""


class Kept(NamedTuple):
    """A membership, with the cell's token and the hub's certificate authority."""

    membership: Membership
    token: str
    authority: str


class Keeping(Protocol):
    """Stores the membership of a cell."""

    async def boot(self) -> Kept:
        """Count a start, and return the membership."""
        ...

    async def keep(self, kept: Kept) -> None: ...


class Member:
    """The files of a membership in a home."""

    def __init__(self, home: Path) -> None:
        self._file = home / "cell.json"
        self._token = home / "hub.token"
        self._authority = home / "hub.crt"

    def read(self) -> Membership | None:
        """Return the membership of this home, or None. Raises HomeDamaged if it cannot be read."""
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(text, type=Membership)
        except msgspec.MsgspecError as error:
            raise HomeDamaged(
                f"{self._file} is damaged: {error}; put back a copy of it, or remove it and join the hub again"
            ) from None

    def write(self, membership: Membership, token: str, authority: str) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._authority, authority.encode())
        write_private(self._token, token.encode())
        write_private(self._file, msgspec.json.encode(membership))

    async def boot(self) -> Kept:
        found = self.read()
        if found is None:
            raise HomeDamaged(f"{self._file} is gone: put back a copy of it, or join the hub again")
        found.boots += 1
        write_private(self._file, msgspec.json.encode(found))
        return Kept(found, self._token.read_text().strip(), self._authority.read_text())

    async def keep(self, kept: Kept) -> None:
        self.write(*kept)


Linking = Callable[[Client, Objects, Recorder, Clock, Fence, LinkCounting], Awaitable[Link]]
Tunnelling = Callable[[About, "RemoteHub", Objects], Tunnel]


def linking(keeping: Keeping, tunnelling: Tunnelling | None = None) -> Linking:
    """Return a function that makes the link to the hub whenever controllers begin to lead. Each time counts as a start.

    `tunnelling` makes the tunnel through which the hub reaches instances; without it, the hub reaches none.
    """

    async def link(
        client: Client, objects: Objects, recorder: Recorder, clock: Clock, fence: Fence, counting: LinkCounting
    ) -> Link:
        kept = await keeping.boot()
        membership = kept.membership
        about = About(membership.cell, membership.identity, membership.boots, __version__)
        hub = RemoteHub(kept, keeping, clock)
        tunnel = tunnelling(about, hub, objects) if tunnelling is not None else None
        return Link(about, hub, client, objects, recorder, clock, fence, tunnel, counting)

    return link


class CellToken:
    """The token of a cell, which can be renewed."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def current(self) -> Credential:
        return Credential(self.token)

    def refuse(self, credential: Credential) -> bool:
        # A retry makes sense if the token was renewed meanwhile.
        return credential.token != self.token


class RemoteHub:
    """A hub over HTTPS. It renews the cell's token in time."""

    def __init__(self, kept: Kept, keeping: Keeping, clock: Clock) -> None:
        self._kept = kept
        self._keeping = keeping
        self._clock = clock
        self._cell = kept.membership.cell
        self._token = CellToken(kept.token)
        self.target = at_url(
            kept.membership.hub,
            tls=Tls(kept.authority),
            credentials=self._token,
            namespace=cell_namespace(self._cell),
        )
        self._backend = HttpBackend(self.target)

    async def report(self, report: Report) -> Answer:
        if 0 < self._kept.membership.renew_at <= self._clock.time():
            await self._renew()
        return msgspec.json.decode(await self._post("report", msgspec.json.encode(report)), type=Answer)

    async def _renew(self) -> None:
        joined = msgspec.json.decode(await self._post("renew", b"{}"), type=Joined)
        membership = msgspec.structs.replace(
            self._kept.membership, renew_at=renewal(joined.renew_seconds, self._clock.time())
        )
        self._kept = Kept(membership, joined.token, self._kept.authority)
        self._token.token = joined.token
        await self._keeping.keep(self._kept)

    async def _post(self, what: str, body: bytes) -> bytes:
        answer = await self._backend.once(
            "POST",
            f"/v1/cells/{self._cell}/{what}",
            body,
            {"Content-Type": "application/json"},
            patience_seconds=REPORT_SECONDS_MAX,
        )
        return answer.body

    def objects(self, wait: Sleep) -> Objects:
        kinds = [kind.api for kind in MIRRORED]
        return CachedObjects(Client(self._backend), kinds, namespace=cell_namespace(self._cell), sleep=wait)

    async def close(self) -> None:
        await self._backend.close()


REPORT_SECONDS_MAX = 30.0


def renewal(seconds: float, now: float) -> float:
    """Return the time to renew a token that is issued now; 0 for never."""
    return now + seconds if seconds else 0.0


async def join(home: Path, *, cell: str, city: str, hub: str, authority: str, token: str) -> Membership:
    """Join a hub, and store the membership in the home. Raises NotJoined.

    `authority` is the fingerprint of the hub's certificate authority, `token` that of the invitation.
    """
    member = Member(home)
    before = member.read()
    if before is not None and (before.cell, before.city) != (cell, city):
        raise NotJoined(f'{home} is cell "{before.cell}" in {before.city} already: choose another home with --home')
    if before is None and Home(home).store.exists():
        raise NotJoined(
            f"{home} is a server of its own, with what it runs: choose another home for the cell with --home"
        )
    kept = await admitted(renewed_membership(before, cell, city, hub), authority, token)
    await member.keep(kept)
    return kept.membership


def renewed_membership(before: Membership | None, cell: str, city: str, hub: str) -> Membership:
    """Return the membership to request. A cell that joins again keeps its identity."""
    if before is None:
        return Membership(cell, city, hub, str(uuid.uuid4()))
    return Membership(cell, city, hub, before.identity, before.boots)


async def admitted(wanted: Membership, authority: str, token: str) -> Kept:
    """Request admission to a hub. Returns what the cell has to store. Raises NotJoined."""
    cell, hub = wanted.cell, wanted.hub
    _check(cell, wanted.city, authority)
    if not hub.startswith("https://"):
        # Without TLS the fingerprint would not identify the server: the certificate is public.
        raise NotJoined(f"--hub: {hub!r} is no https:// address: nothing secret is sent elsewhere")
    try:
        pem = await _authority(hub, authority)
        joined = await _ask(
            at_url(hub, tls=Tls(pem), credentials=Fixed(Credential(token))),
            cell,
            Joining(wanted.identity, wanted.city),
        )
    except KubeconfigError as error:
        raise NotJoined(f"--hub: {error}") from None
    except ApiError as error:
        raise NotJoined(_refused(cell, error)) from None
    except OSError as error:
        if isinstance(error, NotJoined):
            raise
        raise NotJoined(f"the hub at {hub} cannot be reached: {error}") from None
    renewed = msgspec.structs.replace(wanted, renew_at=renewal(joined.renew_seconds, RealClock().time()))
    return Kept(renewed, joined.token, pem)


async def _ask(target: Target, cell: str, joining: Joining) -> Joined:
    backend = HttpBackend(target)
    try:
        body = msgspec.json.encode(joining)
        answer = await backend.once("POST", f"/v1/cells/{cell}/join", body, {"Content-Type": "application/json"})
    finally:
        await backend.close()
    return msgspec.json.decode(answer.body, type=Joined)


def _check(cell: str, city: str, authority: str) -> None:
    if not CELL_NAME.fullmatch(cell):
        raise NotJoined(f"--cell: {cell!r} is no name of a cell: that has 1 to 53 letters a-z, digits and '-'")
    if not CITY_CODE.fullmatch(city):
        raise NotJoined(f"--city: {city!r} is no code of a city: that has 2 to 10 letters a-z and digits, such as dfw")
    if not re.fullmatch(f"{FINGERPRINT}[0-9a-f]{{64}}", authority):
        raise NotJoined(f"--hub-ca: {authority!r} is no fingerprint: `rota cell join {cell}` at the hub prints it")


async def _authority(hub: str, wanted: str) -> str:
    """Return the certificate authority of a hub after comparing its fingerprint. Nothing secret is sent before."""
    backend = HttpBackend(at_url(hub, tls=Tls(insecure=True), credentials=Fixed(Credential())))
    try:
        answer = await backend.once("GET", AUTHORITY)
    finally:
        await backend.close()
    if not hmac.compare_digest(fingerprint(answer.body), wanted):
        raise NotJoined(
            f"what answers at {hub} has another certificate authority than --hub-ca says: it is not the hub that"
            " printed the command, or its home was made anew. Nothing was sent to it"
        )
    return answer.body.decode()


def _refused(cell: str, error: ApiError) -> str:
    if error.code == 401:
        return f"the token has been used, or is older than an hour: `rota cell join {cell}` at the hub prints a new one"
    return f"the hub refuses: {error}"
