"""Several tasks for one worker: what its runner does with them, and what it tells its server."""

from __future__ import annotations

import asyncio
from typing import Any

from rota.runtime.interface import Subject
from rota.runtime.runner.messages import Began, Jobs, Report, Returned, Withdraw
from rota.runtime.runners import JobNews
from tests.tasks.errands import SECONDS_MAX, Errands
from tests.until import until_async
from tests.workers.running import SUBJECT


class News:
    """The news of a runner about its jobs."""

    def __init__(self, errands: Errands) -> None:
        self.all: list[JobNews] = []
        self._came = asyncio.Event()
        errands.site.runners.on_job_news(self._heard)

    def _heard(self, subject: Subject, news: JobNews) -> None:
        self.all.append(news)
        self._came.set()

    async def until(self, news: JobNews) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while news not in self.all:
                self._came.clear()
                await self._came.wait()


def waits(errands: Errands) -> str:
    """A script that ends when a test lets it."""
    return f"until test -e {errands.effects}.go; do sleep 0.01; done"


def let_go(errands: Errands) -> None:
    errands.effects.with_name("effects.go").touch()


def reports(errands: Errands) -> list[Report]:
    heard: list[Report] = []

    def hear(subject: Subject) -> None:
        report = errands.site.runners.report(subject)
        if report is not None:
            heard.append(report)

    errands.site.runners.listen(hear)
    return heard


async def test_jobs_of_a_worker_that_keeps_its_tree_follow_each_other_without_a_report(errands: Errands) -> None:
    await errands.site.up(reset="Keep")
    heard = reports(errands)
    for id_ in ("a", "b", "c"):
        errands.assign(id_, errands.effect(f"echo {id_} >> kept; echo ::rota result $(cat kept)"))
    outcome = await errands.outcome("c")
    assert errands.done() == ["a", "b", "c"] and outcome.result == "a b c" and heard == []
    for id_ in ("a", "b", "c"):
        errands.acknowledge(id_)
    await errands.site.until("Idle")
    assert [one.phase for one in heard] == ["Idle"]


async def test_a_worker_is_held_until_all_outcomes_are_acknowledged(errands: Errands) -> None:
    await errands.site.up(reset="Keep")
    for id_ in ("a", "b"):
        errands.assign(id_, "true")
    await errands.outcome("b")
    errands.acknowledge("b")
    errands.assign("c", "true")
    await errands.outcome("c")
    report = errands.site.runners.report(SUBJECT)
    assert report is not None and (report.phase, report.has_task) == ("Held", True)
    for id_ in ("a", "c"):
        errands.acknowledge(id_)
    await errands.site.until("Idle", lambda report: not report.holder)


async def test_a_worker_with_a_clean_tree_is_reset_before_the_next_job_without_an_acknowledgement(
    errands: Errands,
) -> None:
    await errands.site.up()
    for id_ in ("a", "b"):
        errands.assign(id_, errands.effect("test ! -e left && touch left"))
    assert [(await errands.outcome(id_)).reason for id_ in ("a", "b")] == ["Succeeded", "Succeeded"]
    assert errands.done() == ["a", "b"]


async def test_a_worker_that_is_recreated_takes_one_job_and_returns_the_others(errands: Errands) -> None:
    news = News(errands)
    await errands.site.up(reset="Recreate")
    for id_ in ("a", "b"):
        errands.assign(id_, errands.effect())
    await news.until(Returned("b"))
    await errands.outcome("a")
    errands.assign("c", errands.effect())
    await news.until(Returned("c"))
    assert errands.done() == ["a"]


async def test_a_withdrawn_job_is_returned_and_the_one_that_runs_goes_on(errands: Errands) -> None:
    news = News(errands)
    await errands.site.up(reset="Keep")
    for id_ in ("a", "b", "c"):
        errands.assign(id_, errands.effect(waits(errands)))
    await until_async(errands.done)
    assert errands.site.runners.send(SUBJECT, Withdraw(("a", "b")))
    await news.until(Returned("b"))
    let_go(errands)
    await errands.outcome("c")
    assert errands.done() == ["a", "c"] and Returned("a") not in news.all


async def test_that_a_long_job_runs_is_sent_while_it_does(errands: Errands) -> None:
    news = News(errands)
    await errands.site.up(reset="Keep")
    for id_ in ("a", "b"):
        errands.assign(id_, waits(errands))
    await until_async(lambda: any(isinstance(one, Began) for one in news.all))
    let_go(errands)
    outcome = await errands.outcome("a")
    [began] = [one for one in news.all if isinstance(one, Began) and one.id == "a"]
    assert abs(began.at - outcome.started) < 1.0


async def test_a_runner_goes_on_with_its_queue_while_the_server_is_away_and_lists_it_after_that(
    errands: Errands,
) -> None:
    await errands.site.up(reset="Keep")
    for id_, then in (("a", ""), ("b", waits(errands)), ("c", "")):
        errands.assign(id_, errands.effect(then))
    await errands.outcome("a")
    await errands.site.close()
    await until_async(lambda: errands.done() == ["a", "b"])
    await errands.site.reopen()
    errands._end = errands.site.runners.on_outcomes(errands._heard)
    news = News(errands)
    await news.until(Jobs("b", ("c",)))
    assert [one.id for one in errands.outcomes] == ["a", "a"]
    for id_ in ("a", "b", "c"):
        errands.assign(id_, errands.effect())
    let_go(errands)
    await errands.outcome("c")
    assert errands.done() == ["a", "b", "c"]


async def test_a_job_that_is_cancelled_while_it_waits_does_not_run(errands: Errands) -> None:
    await errands.site.up(reset="Keep")
    for id_ in ("a", "b", "c"):
        errands.assign(id_, errands.effect(waits(errands)))
    errands.cancel("b")
    let_go(errands)
    outcomes: dict[str, Any] = {id_: (await errands.outcome(id_)).reason for id_ in ("a", "b", "c")}
    assert outcomes == {"a": "Succeeded", "b": "Cancelled", "c": "Succeeded"} and errands.done() == ["a", "c"]


async def test_what_was_queued_when_a_runner_was_killed_has_not_begun(errands: Errands) -> None:
    await errands.site.up(reset="Keep")
    for id_ in ("a", "b"):
        errands.assign(id_, errands.effect("sleep 4711"))
    await until_async(errands.done)
    await errands.site.kill()
    news = News(errands)
    await errands.restart()
    await news.until(Jobs())
    assert [(one.id, one.reason) for one in errands.outcomes] == [("a", "WorkerLost")]
    errands.assign("b", errands.effect())
    await errands.outcome("b")
    assert errands.done() == ["a", "b"]
