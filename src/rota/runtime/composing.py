"""Makes the commands of orders, in a sandbox or without one. Starts nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.api.egress import CLOSED, written
from rota.runtime import sandbox, volumes
from rota.runtime.code.places import CODE, PACKAGES, cached
from rota.runtime.code.places import INSIDE as INSIDE_OF
from rota.runtime.interface import BoxSpec, Order, Refused
from rota.runtime.places import INSIDE, PRIVATE, Entry, Launch, Places
from rota.runtime.runner import agent

PATH = "/usr/local/bin:/usr/bin:/bin"
"""The default PATH of instances."""
HOME, TREE = "home", "repo"
"""The folders in the storage of a worker."""
NO_RUNNER = "a worker, or what is prepared with a workspace, runs as a process: leave out runtime container"
NO_GVISOR = "isolation gvisor is for containers: it takes runtime container"
PROGRAM = (
    "import importlib.util as util; "
    f"spec = util.spec_from_file_location('rota agent', {str(Path(agent.__file__).absolute())!r}); "
    "module = util.module_from_spec(spec); spec.loader.exec_module(module); module.main()"
)
# As a module, whose compiled form is cached, and without site-packages. The last word shows its name in `ps`.
AGENT = ("-I", "-S", "-c", PROGRAM, "rota.runtime.runner.agent")
"""The arguments of the agent, which runs commands in a box."""


def is_sandboxed(order: Order) -> bool:
    """Report whether an order runs in a sandbox. Raises `Refused` if it demands one that cannot be made."""
    found = sandbox.available()
    if order.isolation == "gvisor":
        raise Refused("NotIsolated", NO_GVISOR)
    if order.isolation == "sandbox" and not found.ok:
        raise Refused("NotIsolated", f"a sandbox was asked for: {found.why_not}")
    isolated = found.ok and order.isolation != "none"
    if order.network != "host" and not isolated:
        why = found.why_not or "isolation is none"
        raise Refused("NotIsolated", f"network {order.network} takes a sandbox: {why}")
    return isolated


def closed(order: Order) -> list[str]:
    """Return the address ranges that are closed to a sandbox on the host's network; none without a sandbox."""
    return [str(one) for one in CLOSED] if order.network == "host" and is_sandboxed(order) else []


def command(places: Places, order: Order) -> Launch:
    """Return the command of an order. Raises `Refused`."""
    if not order.argv or order.keeps_entrypoint:
        raise Refused("ConfigurationError", f"container {order.container} has no command, and a process needs one")
    folder, inside = places.storage(order)
    if is_sandboxed(order):
        uid = places.uid(order)
        if uid is not None:
            sandbox.own(folder, uid)
        scratch = places.scratch(order.subject, order.container)
        cwd = order.working_dir or inside
        made = _in_sandbox(places, order, order.argv, folder, order.env, cwd, scratch=scratch)
        places.write_entry(order.subject, order.container, Entry("sandbox", cwd, inside, made.env, uid))
        return Launch(made.argv, made.env, wrappers=sandbox.WRAPPERS)
    plain, cwd = _plain(order, folder), order.working_dir or str(folder)
    places.write_entry(order.subject, order.container, Entry("plain", cwd, str(folder), plain.env))
    return Launch(plain.argv, plain.env, cwd)


def box(places: Places, order: Order, digest: str) -> BoxSpec:
    """Return the box of an order's runner. Each digest has a scratch folder: an earlier box may still run."""
    folder, inside = places.storage(order)
    argv = (sys.executable, *AGENT)
    if not is_sandboxed(order):
        if order.volumes:
            raise _no_volumes()
        home, tree = str(folder / HOME), str(folder / TREE)
        env = {"PATH": PATH, **order.env, "HOME": home}
        places.write_entry(order.subject, order.container, Entry("plain", tree, home, {}))
        return BoxSpec(
            argv,
            env,
            str(folder),
            str(folder),
            str(places.record(order)),
            code=str(cached(places.home, CODE, order.code)) if order.code else "",
            packages=str(cached(places.home, PACKAGES, order.packages)) if order.packages else "",
        )
    home, tree = f"{inside}/{HOME}", f"{inside}/{TREE}"
    uid = places.uid(order)
    # It starts outside the tree, which is removed and made anew between two holders.
    scratch = places.box_scratch(order.subject, digest)
    env = {"HOME": home, **order.env}
    made = _in_sandbox(places, order, argv, folder, env, inside, scratch=scratch, is_init=True)
    places.write_entry(order.subject, order.container, Entry("sandbox", tree, home, {}, uid))
    return BoxSpec(
        tuple(made.argv),
        made.env,
        str(folder),
        inside,
        str(places.record(order)),
        uid,
        code=INSIDE_OF[CODE] if order.code else "",
        packages=INSIDE_OF[PACKAGES] if order.packages else "",
    )


def _code(places: Places, order: Order) -> list[sandbox.Bind]:
    """Return the binds of a function's code and packages. Raises `Refused` while they are not there."""
    named = [(kind, name) for kind, name in ((CODE, order.code), (PACKAGES, order.packages)) if name]
    try:
        found = [sandbox.Bind(cached(places.home, kind, name), INSIDE_OF[kind]) for kind, name in named]
    except ValueError as error:
        raise Refused("ConfigurationError", str(error)) from None
    for bind in found:
        if not bind.source.is_dir():
            raise Refused("Provisioning", f"{bind.source.name} is not there yet")
    return found


def write_volumes(places: Places, order: Order, *, for_all: bool = False) -> list[sandbox.Bind]:
    """Write the volumes of an order to folders, and return their binds.

    `for_all`: any uid can read the files, because the user of the container is not known here.
    """
    top = places.volumes(order.subject, order.container)
    top.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    try:
        uid = None if for_all else places.uid(order)
        folders = volumes.write_all(top, order.volumes, uid=uid, for_all=for_all)
    except ValueError as error:
        raise Refused("ConfigurationError", str(error)) from None
    return [sandbox.Bind(folder, place) for place, folder in sorted(folders.items())]


def _in_sandbox(
    places: Places,
    order: Order,
    argv: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    cwd: str,
    *,
    scratch: Path,
    is_init: bool = False,
) -> sandbox.Command:
    uid = places.uid(order)
    scratch.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return sandbox.command(
            argv,
            scratch=scratch,
            storage=sandbox.Bind(folder, order.storage_path or INSIDE),
            read_only=[*write_volumes(places, order), *_code(places, order)],
            env=dict(env),
            cwd=cwd,
            network=order.network,
            targets=[written(one) for one in order.egress],
            uid=uid,
            hostname=order.subject.name,
            hide=[places.home],
            is_init=is_init,
        )
    except ValueError as error:
        raise Refused("ConfigurationError", str(error)) from None


def _plain(order: Order, folder: Path) -> sandbox.Command:
    if order.volumes:
        raise _no_volumes()
    env = {"PATH": PATH, "HOME": str(folder), **order.env}
    program = shutil.which(order.argv[0], path=env["PATH"])
    if program is None:
        raise Refused("ConfigurationError", f"there is no program {order.argv[0]} in {env['PATH']}")
    return sandbox.Command([program, *order.argv[1:]], env)


def _no_volumes() -> Refused:
    return Refused("ConfigurationError", "volumes need a sandbox: without one a process has no paths of its own")
