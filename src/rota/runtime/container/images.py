"""Images: there, or pulled."""

from __future__ import annotations

import asyncio
import re
from weakref import WeakValueDictionary

from rota.api.field_rules import IMAGE
from rota.runtime.container.client import PROXIES, Said, ask, environment
from rota.runtime.container.dialect import DIALECTS, base
from rota.runtime.container.facts import Facts
from rota.runtime.container.removal import EngineFailed
from rota.runtime.interface import Refused

PULL_SECONDS_MAX = 900
PULLS_MAX = 3
"""At once: a pull takes all of the network that it can get."""
PULLS_OF_ONE_MAX = 2
"""At once for one tenant: a registry may take all the time that there is for an answer."""
LOOK_SECONDS_MAX = 30
LOCAL = "localhost/"
HUB, HUB_LIBRARY = "docker.io", "docker.io/library"
# As admission has it. An engine would take what begins with a dash for an option, and a path for a file of the host.
REFERENCE = re.compile(IMAGE)
REFERENCE_LENGTH_MAX = 1024
TRANSPORTS = frozenset(
    (
        *("atomic", "containers-storage", "dir", "docker-archive", "docker-daemon"),
        *("oci", "oci-archive", "ostree", "sif", "tarball"),
    )
)
"""With one of these before a colon, podman takes what follows for a file of the host, whatever it is told of pulls."""


class Images:
    """The images of one engine."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._dialect = DIALECTS[facts.engine]
        self._pulls: dict[tuple[str, str], asyncio.Task[Said]] = {}
        """By tenant and image: each waits for its own turn."""
        self._at_once = asyncio.Semaphore(PULLS_MAX)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ensure(self, reference: str, *, pulls: bool = True, tenant: str = "") -> None:
        """Returns when the image is there; without `pulls`, only if it is. Raises `Refused`.

        Tenants take turns, however many images of theirs wait.
        """
        check_reference(reference)
        if await self._is_there(reference):
            return
        if reference.startswith(LOCAL):
            raise Refused(
                "ImageUnavailable",
                f"the image {reference} is not on this host, and one of that name is never pulled: "
                f"make it with `{self._facts.engine} build` or `{self._facts.engine} load`",
            )
        if not pulls:
            why = "and this server pulls none: it was not started with --network host"
            fix = f"an admin can fetch it with `{self._facts.engine} pull {qualified(reference)}`"
            raise Refused("ImageUnavailable", f"the image {reference} is not on this host, {why}; {fix}")
        said = await self._pulled(reference, tenant)
        if said.code != 0:
            raise Refused(
                "ImageUnavailable", f"the image {reference} is not on this host and cannot be pulled: {said.words}"
            )

    async def _is_there(self, reference: str) -> bool:
        said = await self._ask(*self._dialect.image, reference, seconds_max=LOOK_SECONDS_MAX)
        if said.code == 0:
            return True
        if said.code == self._dialect.image_absent_code and self._dialect.image_absent_words in said.err.lower():
            return False
        # Not the image's fault, and not to be told as if it were.
        raise EngineFailed(f"{self._facts.engine} cannot look for the image {reference}: {said.words}")

    async def _pulled(self, reference: str, tenant: str) -> Said:
        """Whoever wants the same image waits for the same pull, and one that gives up does not end it for the rest."""
        key = (tenant, reference)
        pull = self._pulls.get(key)
        if pull is None:
            pull = asyncio.create_task(self._pull(reference, tenant), name=f"pull {reference}")
            self._pulls[key] = pull
            pull.add_done_callback(lambda _: self._pulls.pop(key))
        return await asyncio.shield(pull)

    async def _pull(self, reference: str, tenant: str) -> Said:
        turn = self._turns.setdefault(tenant, asyncio.Semaphore(PULLS_OF_ONE_MAX))
        of_image = self._locks.setdefault(reference, asyncio.Lock())
        async with turn, of_image:
            # Another tenant may have had it pulled meanwhile.
            if await self._is_there(reference):
                return Said(0, "", "")
            async with self._at_once:
                return await self._ask("pull", "--quiet", qualified(reference), seconds_max=PULL_SECONDS_MAX)

    async def _ask(self, *arguments: str, seconds_max: float) -> Said:
        return await ask([*base(self._facts), *arguments], seconds_max=seconds_max, env=environment(*PROXIES))


def check_reference(reference: str) -> None:
    if len(reference) > REFERENCE_LENGTH_MAX or not REFERENCE.fullmatch(reference):
        raise Refused("ConfigurationError", f"{reference[:REFERENCE_LENGTH_MAX]!r} is not the name of an image")
    first, colon, _ = reference.partition(":")
    if colon and first in TRANSPORTS:
        why = f"with {first}: in front an engine takes files of this host; name its registry, too"
        raise Refused("ConfigurationError", f"{reference!r} is not taken for an image: {why}")


def qualified(reference: str) -> str:
    """With the registry that Kubernetes would take: podman by itself has its own ideas, or none."""
    first, has_path, _ = reference.partition("/")
    if not has_path:
        return f"{HUB_LIBRARY}/{reference}"
    return reference if "." in first or ":" in first or first == "localhost" else f"{HUB}/{reference}"
