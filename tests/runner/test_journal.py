"""The journal of outcomes, through every failure of its writer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rota.runtime.runner import journal as module
from rota.runtime.runner.jobs import Outcome
from rota.runtime.runner.journal import FILE, Journal, JournalFull


def outcome(id_: str, **more: object) -> Outcome:
    return Outcome(id_, "Succeeded", 1.0, 2.0, exit_code=0, **more)  # type: ignore[arg-type]


def reopened(journal: Journal) -> Journal:
    """As after kill -9: nothing is written at the end."""
    journal.close()
    return Journal(journal.folder)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_what_was_begun_and_has_no_end_was_lost_with_its_runner(journal: Journal) -> None:
    started = journal.begun("one")
    [lost] = reopened(journal).pending()
    assert (lost.id, lost.reason, lost.started) == ("one", "WorkerLost", started) and lost.ended >= started


def test_what_was_lost_stays_lost_however_often_it_is_looked_at(journal: Journal) -> None:
    journal.begun("one")
    first = reopened(journal)
    before = first.pending()
    assert reopened(first).pending() == before


def test_what_has_ended_is_pending_until_it_is_acknowledged(journal: Journal) -> None:
    journal.begun("one")
    done = outcome("one", message="said", outputs={"a": "b"}, result="r", usage={"turns": 2.0})
    journal.ended(done)
    again = reopened(journal)
    assert again.pending() == [done] and again.outcome("one") == done
    again.acknowledged("one")
    assert again.pending() == [] == reopened(again).pending()


def test_what_was_acknowledged_is_still_known_to_have_run(journal: Journal) -> None:
    journal.begun("one")
    journal.ended(outcome("one", result="long"))
    journal.acknowledged("one")
    for each in (journal, reopened(journal)):
        assert each.is_known("one") and each.outcome("one") == outcome("one")


def test_pending_outcomes_come_in_the_order_in_which_they_happened(journal: Journal) -> None:
    for id_ in ("b", "a", "c"):
        journal.begun(id_)
        journal.ended(outcome(id_))
    assert [one.id for one in reopened(journal).pending()] == ["b", "a", "c"]


def test_the_first_outcome_of_a_job_counts(journal: Journal) -> None:
    journal.begun("one")
    journal.ended(outcome("one"))
    journal.ended(Outcome("one", "Failed", 1.0, 2.0))
    assert journal.pending() == [outcome("one")]


def test_to_acknowledge_what_is_not_there_is_nothing(journal: Journal) -> None:
    journal.acknowledged("nothing")
    journal.begun("one")
    journal.acknowledged("one")
    assert [one.reason for one in reopened(journal).pending()] == ["WorkerLost"]


def test_a_file_that_ends_anywhere_holds_what_was_written_whole_before(journal: Journal) -> None:
    sizes = [(0, set[str]())]
    for id_ in ("a", "b"):
        journal.begun(id_)
        journal.ended(outcome(id_, result="text\nof lines"))
        sizes.append(((journal.folder / FILE).stat().st_size, {*sizes[-1][1], id_}))
    journal.close()
    whole = (journal.folder / FILE).read_bytes()
    for size in range(len(whole) + 1):
        (journal.folder / FILE).write_bytes(whole[:size])
        torn = Journal(journal.folder)
        ended = {one.id for one in torn.pending() if one.reason == "Succeeded"}
        torn.close()
        # The last byte of a record is the end of its line, which may be missing.
        assert ended == max((ids for at, ids in sizes if at <= size + 1), key=len)


@pytest.mark.parametrize(
    "rubbish", [b"\0" * 4096, b"no line", b"\xff\xfe\n\n\n", b"00000000 {}\n", b'\n{"type":"begun"}\n']
)
def test_rubbish_in_the_file_is_nothing(journal: Journal, rubbish: bytes) -> None:
    journal.begun("one")
    journal.ended(outcome("one"))
    journal.close()
    with (journal.folder / FILE).open("ab") as file:
        file.write(rubbish)
    assert Journal(journal.folder).pending() == [outcome("one")]


def test_what_comes_after_a_torn_line_is_whole(journal: Journal) -> None:
    journal.begun("one")
    journal.close()
    with (journal.folder / FILE).open("ab") as file:
        file.write(b"12345678 {")
    again = Journal(journal.folder)
    again.begun("two")
    assert [one.id for one in reopened(again).pending()] == ["one", "two"]


def test_a_half_written_new_file_is_nothing(journal: Journal) -> None:
    journal.begun("one")
    (journal.folder / module.NEW).write_bytes(b"half")
    assert [one.id for one in reopened(journal).pending()] == ["one"]


def test_two_cannot_have_it_at_once(journal: Journal) -> None:
    with pytest.raises(BlockingIOError):
        Journal(journal.folder)
    reopened(journal)


def test_the_file_does_not_grow_with_the_jobs(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_BYTES_MAX", 20_000)
    monkeypatch.setattr(module, "REMEMBERED_MAX", 16)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)
    for number in range(2000):
        journal.begun(f"job-{number}")
        journal.ended(outcome(f"job-{number}"))
        journal.acknowledged(f"job-{number}")
    assert (journal.folder / FILE).stat().st_size < 30_000
    again = reopened(journal)
    assert again.is_known("job-1999") and not again.is_known("job-1")


def test_no_outcome_is_lost_when_the_file_is_written_anew(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_BYTES_MAX", 500)
    journal.begun("under way")
    for number in range(50):
        journal.begun(f"job-{number}")
        journal.ended(outcome(f"job-{number}"))
    assert len(journal.pending()) == 50
    assert {one.id: one.reason for one in reopened(journal).pending()}["under way"] == "WorkerLost"


def test_with_too_many_that_nobody_wants_no_more_are_begun(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 2)
    for id_ in ("a", "b"):
        journal.begun(id_)
        journal.ended(outcome(id_))
    with pytest.raises(JournalFull):
        journal.begun("c")
    journal.acknowledged("a")
    journal.begun("c")


def test_an_outcome_is_on_disk_before_it_is_told(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    real = os.fdatasync

    def sync(file: int) -> None:
        synced.append(b'"ended"' in (journal.folder / FILE).read_bytes() and not journal.pending())
        real(file)

    monkeypatch.setattr(os, "fdatasync", sync)
    journal.begun("one")
    assert synced == []
    journal.ended(outcome("one"))
    assert synced == [True]


def test_a_disk_that_is_full_leaves_no_half_of_a_record(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.begun("one")
    before = (journal.folder / FILE).read_bytes()
    real = os.write

    def write(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "no space")
        return real(file, bytes(data)[:-10])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="no space"):
        journal.ended(outcome("one"))
    monkeypatch.undo()
    assert (journal.folder / FILE).read_bytes() == before
    journal.ended(outcome("one"))
    assert reopened(journal).pending() == [outcome("one")]


def test_a_journal_that_is_closed_leaves_no_descriptor(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        one = Journal(tmp_path)
        one.begun(f"job-{_}")
        one.close()
    # Other tests' garbage may be collected meanwhile, which closes descriptors.
    assert set(os.listdir("/proc/self/fd")) <= before
