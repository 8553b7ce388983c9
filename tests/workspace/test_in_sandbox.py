"""A workspace of a worker that is kept in a sandbox, from its set-up to the next holder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.api.pool import WorkspaceSpec
from rota.runtime.sandbox import Bind, available, command, uid_of
from rota.runtime.workspace import Finished, Mirror, prepare
from tests.workspace.conftest import Repo


class Worker:
    """Runs commands in the sandbox of one instance."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.storage, self._scratch, self._home = folder / "storage", folder / "scratch", home
        self.uid = uid_of("default/pool/0") if os.geteuid() == 0 else None

    async def run(self, argv: Sequence[str], cwd: Path) -> Finished:
        inside = f"/workspace/{cwd.relative_to(self.storage)}"
        made = command(argv, scratch=self._scratch, storage=Bind(self.storage, "/workspace"), uid=self.uid,
                       cwd=inside, env={"HOME": "/workspace/home"}, hide=[self._home])  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *made.argv, env=made.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return Finished(process.returncode, said.decode())


async def test_setup_runs_inside_and_what_it_leaves_is_gone_after_a_reset(
    mirror: Mirror, repo: Repo, tmp_path: Path
) -> None:
    if not available().ok:
        pytest.skip(available().why_not)
    worker = Worker(tmp_path / "home" / "instances" / "0", tmp_path / "home")
    spec = WorkspaceSpec(
        repo=repo.url, setup=["/bin/sh", "-c", "git status --porcelain && pwd > made && id -u >> made"]
    )
    await prepare(mirror, spec, worker.storage, worker.run, uid=worker.uid)
    tree = worker.storage / "repo"
    uid = os.geteuid() if worker.uid is None else worker.uid
    assert (tree / "made").read_text().split() == ["/workspace/repo", str(uid)]

    plant = (
        "git config core.fsmonitor 'touch /tmp/x'; mkdir -p .git/hooks; echo exit > .git/hooks/post-checkout;"
        "chmod +x .git/hooks/post-checkout; cp /bin/true setuid; chmod 4755 setuid; mkfifo ../fifo;"
        "touch ../outside ../home/.profile;"
        "mkdir -p closed/er; chmod 000 closed; chmod 000 ..; sleep 600 &"
    )
    assert (await worker.run(["/bin/sh", "-c", plant], tree)).code == 0
    await prepare(mirror, spec, worker.storage, worker.run, uid=worker.uid)
    assert sorted(os.listdir(worker.storage)) == ["home", "repo"]
    assert os.listdir(worker.storage / "home") == []
    assert sorted(os.listdir(tree)) == [".git", "file", "made"]
    assert not (tree / ".git" / "hooks").exists()
    assert "fsmonitor" not in (tree / ".git" / "config").read_text()
    assert (await worker.run(["/bin/sh", "-c", "git status --porcelain"], tree)).output.split() == ["??", "made"]
