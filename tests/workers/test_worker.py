"""A worker's life, as its runner has it: a real process, with and without a sandbox."""

from __future__ import annotations

import os
import signal
import uuid
from pathlib import Path

import pytest

from rota.runtime.runner.box import read_note
from rota.runtime.runner.jobs import Job
from rota.runtime.runner.messages import Acknowledge, Assign, Report
from rota.runtime.runners import Runners
from tests.attacks.test_holds import STAYS, running, until_running
from tests.until import until_async
from tests.workers.running import SUBJECT, Site, workspace
from tests.workspace.conftest import Repo


def phases(site: Site) -> list[str]:
    return [report.phase for report in site.reports]


async def test_it_waits_to_be_told_and_then_prepares_and_is_idle(site: Site, repo: Repo) -> None:
    await site.up(spec=workspace(repo.url, files={"extra/a": "b"}), files={".rota/instructions.md": "Be brief."})
    assert phases(site) == ["Waiting", "Preparing", "Idle"]
    assert (site.tree / "file").read_text() == "content\n" and (site.tree / "extra" / "a").read_text() == "b"
    told = site.storage / "home" / ".rota" / "instructions.md"
    assert told.read_text() == "Be brief." and told.stat().st_mode & 0o777 == 0o600
    assert site.reports[-1].configured and site.reports[-1].run == 1


async def test_to_be_told_the_same_again_changes_nothing(site: Site) -> None:
    await site.up()
    (site.tree / "mark").touch()
    before, box = len(site.reports), site.box()
    site.configure()
    await site.held()
    assert phases(site)[before:] == ["Held"] and site.box() == box and (site.tree / "mark").exists()


async def test_what_cannot_be_prepared_is_told_with_its_reason_and_tried_again(site: Site, repo: Repo) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure(spec=workspace(f"file://{repo.path}-later"))
    failed = await site.until("Failed")
    assert failed.reason == "RepositoryNotFound" and "-later" in failed.message
    repo.path.rename(f"{repo.path}-later")
    await site.until("Idle")
    assert (site.tree / "file").exists()


async def test_a_setup_that_fails_is_told_with_its_last_words(site: Site, repo: Repo) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure(spec=workspace(repo.url, setup=["sh", "-c", "echo no paper; exit 3"]))
    failed = await site.until("Failed")
    assert failed.reason == "SetupFailed" and failed.message.endswith("ended with 3: no paper")


async def test_what_was_bad_is_made_good_by_telling_something_else(site: Site, repo: Repo) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure("bad", spec=workspace(f"file://{repo.path}-never"))
    await site.until("Failed")
    site.configure("good", spec=workspace(repo.url))
    await site.until("Idle")


async def test_what_it_has_is_not_said_to_be_configured_while_it_is_not(site: Site, repo: Repo) -> None:
    await site.up("good", spec=workspace(repo.url))
    site.configure("bad", spec=workspace(f"file://{repo.path}-never"))
    failed = await site.until("Failed")
    assert failed.configured == ""


async def test_a_setup_leaves_no_process(site: Site, repo: Repo) -> None:
    script = "(setsid sleep 4711 >/dev/null 2>&1 &); touch done"
    await site.up(spec=workspace(repo.url, setup=["sh", "-c", script]))
    assert (site.tree / "done").exists() and site.below("sleep 4711") == []


async def test_a_setup_says_more_than_is_kept(site: Site, repo: Repo) -> None:
    script = "head -c 10000000 /dev/zero | tr '\\0' x; echo the end; exit 1"
    await site.start()
    await site.until("Waiting")
    site.configure(spec=workspace(repo.url, setup=["sh", "-c", script]))
    failed = await site.until("Failed")
    assert failed.message.endswith("xthe end") and len(failed.message) < 3000


async def test_while_somebody_has_it_nothing_is_changed(site: Site) -> None:
    await site.up()
    await site.held()
    (site.tree / "work").touch()
    box = site.box()
    site.configure("two", files={"new": "file"})
    await site.until("Held", lambda report: report.configured == "")
    assert (site.tree / "work").exists() and site.box() == box and not (site.storage / "home" / "new").exists()
    await site.released()
    assert not (site.tree / "work").exists() and (site.storage / "home" / "new").exists()


async def test_released_it_is_as_new(site: Site, repo: Repo) -> None:
    await site.up(spec=workspace(repo.url), files={"told": "as is"})
    await site.held()
    (site.tree / "file").write_text("changed")
    (site.storage / "home" / "told").write_text("changed")
    (site.storage / "beside").touch()
    await site.released()
    assert phases(site)[-3:] == ["Held", "Resetting", "Idle"]
    assert (site.tree / "file").read_text() == "content\n"
    assert (site.storage / "home" / "told").read_text() == "as is"
    assert sorted(os.listdir(site.storage)) == ["home", "repo"]


async def test_a_hold_while_it_is_not_idle_is_not_taken(site: Site, repo: Repo) -> None:
    await site.up(spec=workspace(repo.url))
    await site.held("first")
    site.hold("second")
    site.release()
    site.hold("third")
    await site.until("Idle", lambda report: not report.holder)
    assert {report.holder for report in site.reports} == {"", "first"}


async def test_a_release_that_nobody_waits_for_is_nothing(site: Site) -> None:
    await site.up()
    box, before = site.box(), len(site.reports)
    site.release()
    await site.held()
    assert site.box() == box and phases(site)[before:] == ["Held"]


async def test_a_late_second_release_does_not_end_the_next_hold(site: Site) -> None:
    await site.up()
    await site.held("first")
    site.release()
    site.release()
    await site.until("Idle", lambda report: not report.holder)
    await site.held("second")
    (site.tree / "work").touch()
    site.configure("two")
    await site.until("Held", lambda report: report.configured == "")
    assert (site.tree / "work").exists()


async def test_a_holder_whose_box_dies_has_lost_it_and_all_is_as_new(site: Site) -> None:
    await site.up()
    await site.held()
    (site.tree / "work").touch()
    os.kill(site.box(), signal.SIGKILL)
    report = await site.until("Idle", lambda report: not report.holder)
    assert report.holder == "" and not (site.tree / "work").exists()
    assert site.box()


async def test_a_box_that_dies_while_nobody_has_it_is_made_again_and_the_tree_stays(site: Site) -> None:
    await site.up()
    (site.tree / "mark").touch()
    before = site.box()
    os.kill(before, signal.SIGKILL)
    await until_async(lambda: (box := read_note(site.places.box(SUBJECT))) and not box.process.startswith(f"{before}@"))
    await site.until("Idle")
    assert (site.tree / "mark").exists()


async def test_a_runner_that_crashes_while_somebody_has_it_begins_with_a_clean_tree(site: Site, repo: Repo) -> None:
    await site.up(spec=workspace(repo.url))
    await site.held()
    (site.tree / "file").write_text("half of it")
    await site.kill()
    await site.up(spec=workspace(repo.url))
    assert (site.tree / "file").read_text() == "content\n" and site.reports[-1].holder == ""


async def test_a_runner_that_crashes_while_it_is_idle_finds_what_it_had_prepared(site: Site, repo: Repo) -> None:
    await site.up(spec=workspace(repo.url))
    (site.tree / "file").write_text("as it was")
    await site.kill()
    await site.up(spec=workspace(repo.url))
    assert (site.tree / "file").read_text() == "as it was"


async def test_a_runner_that_crashes_while_it_prepares_begins_anew(site: Site, repo: Repo, tmp_path: Path) -> None:
    waiting = tmp_path / "fifo"
    os.mkfifo(waiting)
    script = f"touch half; test -e {tmp_path}/second || cat {waiting}"
    await site.start()
    await site.until("Waiting")
    site.configure(spec=workspace(repo.url, setup=["sh", "-c", script]))
    await until_async(lambda: (site.tree / "half").exists())
    (site.tree / "rubbish").touch()
    await site.kill()
    (tmp_path / "second").touch()
    await site.up(spec=workspace(repo.url, setup=["sh", "-c", script]))
    assert not (site.tree / "rubbish").exists()


async def test_keep_keeps_the_files_and_no_process(boxed: Site) -> None:
    await boxed.up(reset="Keep")
    await boxed.held()
    await boxed.execute("sh", "-c", "echo mine > work; echo x > /tmp/left; (setsid sleep 4711 >/dev/null 2>&1 &)")
    await until_async(lambda: boxed.below("sleep 4711"))
    await boxed.released()
    assert boxed.below("sleep 4711") == []
    assert await boxed.execute("sh", "-c", "cat work; find /tmp -name left") == "mine\n"


async def test_a_claim_that_is_said_twice_has_the_worker_when_all_that_a_task_left_has_ended(boxed: Site) -> None:
    await boxed.up(reset="Keep")
    mark = uuid.uuid4().hex
    job = Job("first", "python", ("builtins:exec", STAYS.replace("{mark}", mark), "{}"), {}, "repo")
    assert boxed.runners.send(SUBJECT, Assign(job))
    await until_async(lambda: [one for one in boxed.runners.outcomes(SUBJECT) if one.reason == "Succeeded"])
    assert boxed.runners.send(SUBJECT, Acknowledge("first"))
    await boxed.until("Idle", lambda report: not report.holder)
    await until_running(mark)
    # As a server does that has not heard of it yet.
    boxed.hold()
    boxed.hold()
    await boxed.until("Held", lambda report: report.holder == "holder")
    assert running(mark) == []
    await boxed.released()


async def test_keep_keeps_the_files_without_a_sandbox_too(site: Site) -> None:
    await site.up(reset="Keep")
    await site.held()
    (site.tree / "work").touch()
    await site.released()
    assert (site.tree / "work").exists()


async def test_keep_keeps_the_files_of_a_holder_whose_runner_crashed(site: Site) -> None:
    await site.up(reset="Keep")
    await site.held()
    (site.tree / "work").touch()
    await site.kill()
    await site.up(reset="Keep")
    assert (site.tree / "work").exists()


async def test_clean_that_is_asked_for_while_it_is_held_counts(site: Site) -> None:
    await site.up(reset="Keep")
    await site.held()
    (site.tree / "work").touch()
    site.configure("two", reset="Clean")
    await site.until("Held", lambda report: report.configured == "")
    await site.released()
    assert not (site.tree / "work").exists()


async def test_the_environment_of_the_box_is_the_last_one_that_was_told(site: Site) -> None:
    await site.up(env={"WORD": "old"})
    assert await site.execute("sh", "-c", "echo $WORD") == "old\n"
    site.configure("two", env={"WORD": "new"})
    await site.until("Idle", lambda report: report.configured not in ("", site.reports[2].configured))
    assert await site.execute("sh", "-c", "echo $WORD") == "new\n"


async def test_without_its_gateway_it_goes_on_and_says_everything_when_it_is_back(site: Site) -> None:
    await site.up()
    await site.held()
    await site.close()
    assert site.process is not None
    os.kill(site.box(), signal.SIGKILL)
    await until_async(lambda: len(site.below("runner.agent")) == 1)
    await site.reopen()
    report = await site.until("Idle")
    assert report.holder == "" and report.configured and site.process.returncode is None


async def test_two_gateways_one_after_the_other_hear_the_same(site: Site) -> None:
    await site.up()
    await site.held()
    before: Report = site.reports[-1]
    await site.close()
    site.runners = Runners()
    await site.reopen()
    assert await site.until("Held") == before


async def test_told_to_end_it_leaves_nothing(site: Site) -> None:
    await site.up(main=["sh", "-c", "(setsid sleep 4711 &) ; exec sleep 4712"])
    await until_async(lambda: site.below("sleep 4711") and site.below("sleep 4712"))
    everything = site.below("")
    assert site.process is not None
    site.process.terminate()
    assert await site.process.wait() == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{pid}").exists() for pid in everything)


async def test_what_runs_all_the_time_is_asked_to_end_before_it_is_ended(site: Site, tmp_path: Path) -> None:
    script = f"trap 'touch {tmp_path}/ended; exit 0' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done"
    await site.up(main=["sh", "-c", script])
    await until_async((tmp_path / "up").exists)
    assert site.process is not None
    site.process.terminate()
    assert await site.process.wait() == 0 and (tmp_path / "ended").exists()


async def test_in_a_sandbox_it_is_asked_too(boxed: Site) -> None:
    script = "trap 'touch ended; exit 3' TERM; touch up; while :; do sleep 0.05; done"
    await boxed.up(main=["sh", "-c", script])
    await until_async((boxed.tree / "up").exists)
    assert boxed.process is not None
    boxed.process.terminate()
    assert await boxed.process.wait() == 3 and (boxed.tree / "ended").exists()


async def test_the_end_of_what_runs_all_the_time_is_the_runners_own(site: Site) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure(main=["sh", "-c", "echo bye; exit 5"])
    assert site.process is not None
    assert await site.process.wait() == 5 and "bye" in site.log.read_text()


async def test_a_signal_that_ended_it_is_told_as_shells_do(site: Site) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure(main=["sh", "-c", "kill -9 $$"])
    assert site.process is not None
    assert await site.process.wait() == 128 + signal.SIGKILL


async def test_a_program_that_is_not_there_is_said_in_the_log(site: Site) -> None:
    await site.start()
    await site.until("Waiting")
    site.configure(main=["no-such-program"])
    assert site.process is not None
    assert await site.process.wait() == 127 and "no-such-program" in site.log.read_text()


async def test_what_cannot_be_removed_makes_it_broken(site: Site) -> None:
    await site.up()
    await site.held()
    mounted = site.tree / "mounted"
    mounted.mkdir()
    if os.system(f"mount -t tmpfs none {mounted} 2>/dev/null"):
        pytest.skip("no mount can be made here")
    try:
        site.release()
        broken = await site.until("Broken")
        assert broken.reason == "MustReplace" and "cannot be emptied" in broken.message
    finally:
        os.system(f"umount {mounted}")
