"""The contract of every maker. To hold another one to it, add its site to `site`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import Instance
from rota.api.egress import Policy
from rota.api.instance import Assignment, Port, Probe, Storage, TCPSocketAction
from rota.api.model import KeyRef
from rota.api.parts import EnvVar, ValueFrom
from rota.client import Key
from rota.control.instances.names import owner_of
from rota.control.making.interface import InstanceMaker, Observed
from rota.registry.privileges import RESTRICTED
from tests.control.making.sites import News, Site, an_instance, site_of

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("default", "one")
TOKEN = EnvVar(name="TOKEN", value_from=ValueFrom(secret_key_ref=KeyRef(name="s", key="token")))


@pytest.fixture(params=["memory", "processes"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with site_of(request.param, tmp_path) as made:
        yield made


class Making:
    """A maker that has begun, and its news."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.maker: InstanceMaker = site.maker()
        self.news = News()
        self._stop: Callable[[], None] | None = self.maker.begin(self.news.wake)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
        self._stop = None

    async def make(self, obj: Instance, *start: str) -> Observed:
        return await self.maker.make(self.site.objects, obj, start)

    async def made(self, **spec: Any) -> Instance:
        obj = an_instance(self.site, **spec)
        assert (await self.make(obj)).obstacle is None
        return obj

    async def until_ended(self, obj: Instance, *containers: str) -> Observed:
        def has_ended() -> bool:
            runs = self.maker.observe(obj).runs
            return all(runs[one].exit is not None for one in containers or ("main",))

        await self.news.until(has_ended)
        return self.maker.observe(obj)

    async def end(self, obj: Instance, grace_seconds: float = 0, *, keep_storage: bool = False) -> None:
        """As the Instance controller does it: again when there is news, until it is over."""
        await self.news.until(lambda: self.maker.end(obj, grace_seconds, keep_storage=keep_storage))


@pytest.fixture
async def making(site: Site) -> AsyncIterator[Making]:
    made = Making(site)
    yield made
    made.stop()


async def secret(site: Site, **values: str) -> None:
    meta = {"name": "s", "namespace": "default"}
    await site.client.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": values})


# Making.


async def test_what_is_made_has_a_run_of_every_container(making: Making) -> None:
    obj = await making.made(containers=("main", "beside"))
    runs = making.maker.observe(obj).runs
    assert {name: (run.number, run.exit) for name, run in runs.items()} == {"main": (0, None), "beside": (0, None)}
    assert all(run.id for run in runs.values()) and KEY in making.news.keys


async def test_to_make_twice_makes_once(making: Making) -> None:
    obj = await making.made()
    before = making.maker.observe(obj)
    assert (await making.make(obj)).runs == before.runs == making.maker.observe(obj).runs


async def test_another_maker_adopts_what_is_there_and_is_told_of_it(making: Making) -> None:
    obj = await making.made()
    before = making.maker.observe(obj).runs
    making.stop()
    other = Making(making.site)
    await other.news.until(lambda: KEY in other.news.keys)
    assert other.maker.observe(obj).runs == before
    assert (await other.make(obj)).runs == before
    other.stop()


async def test_a_secret_reaches_what_runs_and_is_in_nothing_that_is_reported(making: Making) -> None:
    await secret(making.site, token="hush")
    obj = await making.made(container={"env": [TOKEN]})
    assert (await making.site.environment(obj))["TOKEN"] == "hush"
    reported = making.maker.observe(obj), making.maker.describe(obj), [*making.maker.warnings(obj)]
    assert "hush" not in repr(reported)


async def test_what_cannot_be_made_has_an_obstacle_until_it_can_be(making: Making) -> None:
    await secret(making.site, other="x")
    obj = an_instance(making.site, container={"env": [TOKEN]})
    obstacle = (await making.make(obj)).obstacle
    assert obstacle is not None and (obstacle.reason, obstacle.is_made) == ("ConfigurationError", False)
    assert "Secret/s has no key token" in obstacle.message
    assert not await making.site.is_alive(obj) and making.maker.observe(obj).runs == {}
    await secret(making.site, token="hush")
    assert (await making.make(obj)).obstacle is None
    assert (await making.site.environment(obj))["TOKEN"] == "hush"


async def test_what_an_earlier_instance_of_the_name_left_is_ended_first(making: Making) -> None:
    earlier = await making.made()
    obj = await making.made()
    assert not await making.site.is_alive(earlier) and making.maker.observe(earlier).runs == {}
    assert making.maker.observe(obj).runs["main"].exit is None


async def test_ports_have_addresses_which_what_runs_is_told(making: Making) -> None:
    obj = await making.made(container={"ports": [Port(name="http")]})
    addresses = making.maker.describe(obj).addresses
    assert addresses is not None
    [address] = addresses
    assert address.name == "http" and (await making.site.environment(obj))["PORT"] == str(address.port)


async def test_a_maker_that_has_not_made_an_instance_does_not_make_up_its_addresses(making: Making) -> None:
    obj = await making.made(container={"ports": [Port(name="http")]})
    assert making.site.maker().describe(obj).addresses is None


async def test_it_says_how_far_an_instance_is_kept_apart(making: Making) -> None:
    obj = await making.made(storage=Storage(size="1Gi"))
    said = {one.type: one.reason for one in making.maker.describe(obj).conditions}
    assert set(said) == {"Isolated", "NetworkConfined", "StorageBounded"} and all(said.values())


# What nobody may have.


async def test_what_a_tenant_may_not_have_is_not_made(making: Making) -> None:
    obj = an_instance(making.site, marks={RESTRICTED: "true"})
    refused = making.maker.refusal(making.site.objects, obj)
    assert refused is not None and "is not isolated" in refused.message
    assert (await making.make(obj)).obstacle == refused and not await making.site.is_alive(obj)


async def test_what_has_more_network_than_the_server_gives_by_now_is_ended(making: Making) -> None:
    obj = await making.made(network="host", termination_grace_period_seconds=0)
    making.site.set_policy(Policy("none"))
    assert making.maker.refusal(making.site.objects, obj) is None, "it is an admin's"
    marked = msgspec.structs.replace(obj.metadata, annotations={RESTRICTED: "true"})
    obj = msgspec.structs.replace(obj, metadata=marked)
    refused = making.maker.refusal(making.site.objects, obj)
    assert refused is not None and "network none" in refused.message
    assert (await making.make(obj)).obstacle == refused and not await making.site.is_alive(obj)


# Ends of runs.


@pytest.mark.parametrize("code", [0, 3])
async def test_an_end_is_told_with_its_code(making: Making, code: int) -> None:
    obj = await making.made()
    await making.site.exit(obj, code)
    ended = (await making.until_ended(obj)).runs["main"].exit
    assert ended is not None and (ended.code, ended.failed) == (code, code != 0)


async def test_what_has_ended_stays_ended_until_a_start_is_ordered(making: Making) -> None:
    obj = await making.made(containers=("main", "beside"))
    await making.site.exit(obj, 1)
    before = (await making.until_ended(obj)).runs
    assert (await making.make(obj)).runs == before
    after = (await making.make(obj, "main")).runs
    assert (after["main"].number, after["main"].exit) == (1, None) and after["main"].id != before["main"].id
    assert after["beside"] == before["beside"], "it ran all the time"


async def test_a_restart_ends_one_run_as_any_end(making: Making) -> None:
    obj = await making.made(containers=("main", "beside"))
    making.maker.restart(obj, "main")
    runs = (await making.until_ended(obj)).runs
    assert runs["beside"].exit is None
    assert (await making.make(obj, "main")).runs["main"].number == 1


async def test_renewed_it_has_ended_and_starts_as_its_holder_wants_it(making: Making) -> None:
    obj = await making.made(containers=("main", "beside"), storage=Storage(size="1Gi"))
    await making.maker.renew(obj)
    runs = (await making.until_ended(obj, "main", "beside")).runs
    assert {run.number for run in runs.values()} == {0} and not await making.site.is_alive(obj)
    assert ("default", owner_of(obj)) in making.maker.storages()
    options = {"env": [{"name": "WISH", "value": "granted"}]}
    held = Assignment(id="h", kind="Claim", name="c", uid="u", since=SINCE, options=options)
    obj = msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, assignment=held))
    runs = (await making.make(obj, "main", "beside")).runs
    assert {(run.number, run.exit) for run in runs.values()} == {(1, None)}
    assert (await making.site.environment(obj))["WISH"] == "granted"


# Probes.


def a_probe(port: int) -> Probe:
    return Probe(tcp_socket=TCPSocketAction(port=port), period_seconds=1, failure_threshold=1)


async def test_it_is_unready_until_its_probe_passes(making: Making) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        obj = an_instance(making.site, container={"readiness_probe": a_probe(listener.getsockname()[1])})
        assert "is not ready" in (await making.make(obj)).unready
        listener.listen()
        await making.news.until(lambda: not making.maker.observe(obj).unready)
    await making.news.until(lambda: "nothing listens there" in making.maker.observe(obj).unready)
    assert making.maker.observe(obj).unhealthy == "", "it is alive"


async def test_what_is_not_alive_is_named(making: Making) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        obj = an_instance(making.site, container={"liveness_probe": a_probe(nobody.getsockname()[1])})
        assert (await making.make(obj)).unhealthy == ""
        await making.news.until(lambda: making.maker.observe(obj).unhealthy == "main")
    assert "is not alive" in making.maker.observe(obj).unready
    assert making.maker.observe(obj).runs["main"].exit is None, "the controller decides on that"


# Ends of instances.


async def test_when_an_end_is_over_nothing_is_alive_and_nothing_is_known(making: Making) -> None:
    obj = await making.made(containers=("main", "beside"))
    await making.end(obj)
    assert not await making.site.is_alive(obj) and making.maker.observe(obj).runs == {}
    assert await making.maker.end(obj, 0, keep_storage=False), "ended twice is ended once"


async def test_an_end_that_takes_its_time_is_told_when_it_is_over(making: Making) -> None:
    obj = await making.made(stubborn=True)
    await making.site.until_up(obj)
    for _ in range(2):
        assert not await making.maker.end(obj, 600, keep_storage=False)
        assert await making.site.is_alive(obj)
    heard = len(making.news.keys)
    await making.site.exit(obj, 0)
    await making.end(obj, 600)
    assert KEY in making.news.keys[heard:] and not await making.site.is_alive(obj)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_storage_outlives_an_instance_if_it_is_kept(making: Making, is_kept: bool) -> None:
    obj = await making.made(storage=Storage(size="1Gi"))
    await making.end(obj, keep_storage=is_kept)
    assert (("default", owner_of(obj)) in making.maker.storages()) is is_kept
    await making.maker.drop_storage("default", owner_of(obj))
    assert ("default", owner_of(obj)) not in making.maker.storages()


async def test_what_is_discarded_leaves_nothing(making: Making) -> None:
    obj = await making.made(stubborn=True, storage=Storage(size="1Gi"))
    async with asyncio.timeout(20):
        await making.maker.discard(obj)
        await making.end(obj)
    assert not await making.site.is_alive(obj) and ("default", owner_of(obj)) not in making.maker.storages()


async def test_what_is_left_of_a_name_that_is_gone_ends(making: Making) -> None:
    obj = await making.made()
    await making.maker.gone(Key("default", "another"))
    assert making.maker.observe(obj).runs["main"].exit is None
    await making.maker.gone(KEY)
    assert not await making.site.is_alive(obj) and making.maker.observe(obj).runs == {}


async def test_a_maker_that_has_stopped_tells_nothing_and_what_it_made_goes_on(making: Making) -> None:
    obj, other = await making.made(), Making(making.site)
    making.stop()
    await making.site.until_up(obj)
    before = len(making.news.keys)
    await making.site.exit(obj, 0)
    await other.until_ended(obj)
    assert len(making.news.keys) == before
    other.stop()
