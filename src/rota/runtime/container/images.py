"""Images of containers: looked for on this host, and pulled if they are missing."""

from __future__ import annotations

import asyncio
import re
from weakref import WeakValueDictionary

from rota.api.field_rules import IMAGE
from rota.runtime.container.client import PROXIES, EngineOutput, environment, run_program
from rota.runtime.container.dialect import DIALECTS, Facts, base
from rota.runtime.container.removal import EngineFailed
from rota.runtime.interface import Refused

PULL_SECONDS_MAX = 900
PULLS_MAX = 3
"""The most pulls at once: a pull takes all of the network that it can get."""
PULLS_OF_ONE_MAX = 2
"""The most pulls at once for one tenant: a registry may delay its answers for PULL_SECONDS_MAX."""
LOOK_SECONDS_MAX = 30
LOCAL = "localhost/"
HUB, HUB_LIBRARY = "docker.io", "docker.io/library"
# As in admission. An engine takes a name that begins with a dash for an option, and a path for a file of the host.
REFERENCE = re.compile(IMAGE)
REFERENCE_LENGTH_MAX = 1024
TRANSPORTS = frozenset(
    (
        *("atomic", "containers-storage", "dir", "docker-archive", "docker-daemon"),
        *("oci", "oci-archive", "ostree", "sif", "tarball"),
    )
)
"""Prefixes of references that podman reads as a file of the host, even with --pull=never."""


class Images:
    """The images of one engine."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._dialect = DIALECTS[facts.engine]
        self._pulls: dict[tuple[str, str], asyncio.Task[EngineOutput]] = {}
        """Pulls that run or wait, by tenant and image."""
        self._at_once = asyncio.Semaphore(PULLS_MAX)
        self._tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def ensure(self, reference: str, *, pulls: bool = True, tenant: str = "") -> None:
        """Pull an image if it is missing and `pulls` is set. When this returns, the image is there. Raises `Refused`.

        Tenants take turns, however many of their images wait.
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
                "ImageUnavailable", f"the image {reference} is not on this host and cannot be pulled: {said.failure}"
            )

    async def _is_there(self, reference: str) -> bool:
        said = await self._ask(*self._dialect.image, reference, seconds_max=LOOK_SECONDS_MAX)
        if said.code == 0:
            return True
        if said.code == self._dialect.image_absent_code and self._dialect.image_absent_words in said.err.lower():
            return False
        # A failure of the engine, not a missing image.
        raise EngineFailed(f"{self._facts.engine} cannot look for the image {reference}: {said.failure}")

    async def _pulled(self, reference: str, tenant: str) -> EngineOutput:
        """Pull an image. Callers of the same tenant share one pull; cancelling one of them does not stop it."""
        key = (tenant, reference)
        pull = self._pulls.get(key)
        if pull is None:
            pull = asyncio.create_task(self._pull(reference, tenant), name=f"pull {reference}")
            self._pulls[key] = pull
            pull.add_done_callback(lambda _: self._pulls.pop(key))
        return await asyncio.shield(pull)

    async def _pull(self, reference: str, tenant: str) -> EngineOutput:
        of_tenant = self._tenants.setdefault(tenant, asyncio.Semaphore(PULLS_OF_ONE_MAX))
        of_image = self._locks.setdefault(reference, asyncio.Lock())
        async with of_tenant, of_image:
            # A pull of another tenant may have brought it meanwhile.
            if await self._is_there(reference):
                return EngineOutput(0, "", "")
            async with self._at_once:
                return await self._ask("pull", "--quiet", qualified(reference), seconds_max=PULL_SECONDS_MAX)

    async def _ask(self, *arguments: str, seconds_max: float) -> EngineOutput:
        return await run_program([*base(self._facts), *arguments], seconds_max=seconds_max, env=environment(*PROXIES))


def check_reference(reference: str) -> None:
    if len(reference) > REFERENCE_LENGTH_MAX or not REFERENCE.fullmatch(reference):
        raise Refused("ConfigurationError", f"{reference[:REFERENCE_LENGTH_MAX]!r} is not the name of an image")
    first, colon, _ = reference.partition(":")
    if colon and first in TRANSPORTS:
        why = f"with {first}: in front an engine takes files of this host; name its registry, too"
        raise Refused("ConfigurationError", f"{reference!r} is not taken for an image: {why}")


def qualified(reference: str) -> str:
    """Return a reference with the default registry of Kubernetes. Podman's own default differs, or is missing."""
    first, has_path, _ = reference.partition("/")
    if not has_path:
        return f"{HUB_LIBRARY}/{reference}"
    return reference if "." in first or ":" in first or first == "localhost" else f"{HUB}/{reference}"
