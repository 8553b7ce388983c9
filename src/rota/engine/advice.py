"""Advice: the next thing to do about the cause of a wait, with the exact command if there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rota.api import Kind
from rota.api.schema import object_schema
from rota.engine.references import kind_of, shown

Verdict = Literal[
    "Cycle",
    "Missing",
    "Failed",
    "Error",
    "Spinning",
    "Deleting",
    "Hidden",
    "Unattended",
    "Gated",
    "Settled",
    "Working",
    "Blocked",
    "Ready",
]
"""The state of an object that others wait for. Those that need a person come first; those that pass come last.

Cycle: it waits for itself, through others. Missing: it does not exist. Failed: it has failed. Error: its controller
fails and retries. Spinning: it is reconciled over and over. Deleting: it is being deleted. Hidden: the caller may not
read it. Unattended: no controller acts on its kind. Gated: its references are ready, and no controller here does more.
Settled: its controller has nothing left to do. Working: its controller works on it, or soon will. Blocked: it
waits for others. Ready: it is ready.
"""
CREATED_BY_HAND = {"Secret": "secret generic", "ConfigMap": "configmap"}
UNSERVED = "NotServed"
"""The reason of a field that nothing here implements."""
RUN = ("WorkerPool", "Instance", "Function", "Schedule", "Workload", "WorkloadDeployment", "Cell")
"""Kinds whose reasons have advice in `TO_CORRECT`."""
CONFIGURATION = "ConfigurationError"
TO_CORRECT = {
    "InstanceCrashing": "see why {name} ends ({logs}), and correct its command or settings: {edit}",
    "ImageUnavailable": "put the image of {name} where it can be had, or correct its name: {edit}",
    CONFIGURATION: "correct {name}: {edit}",
    "KeeperTooOld": "`rota stop`, then `rota start` in the cell: that starts a keeper of this version",
    "NotIsolated": "install what `rota doctor` says is missing for a sandbox, or do without in {name}: {edit}",
    "LocationNotFound": "make a Location of the city (`rota apply -f FILE`), or correct the cities of {name}: {edit}",
    "NoCellInCity": "correct the cities of {name}: {edit}; `rota get cells` shows where there are cells",
    "NotJoined": "have a server join under that name: `rota cell list` says how",
    "VersionSkew": "bring the Rota of the cell and of its hub closer together: `rota cell list` shows which they run",
    "CellsLost": "see why the cells of the city are not in reach: `rota get cells`",
    "CellsCordoned": "have something placed in a cell of the city again: `rota get cells`, then `rota edit cell/NAME`",
    "CellsFull": "give a cell of the city more capacity (`rota edit cell/NAME`), or want fewer: {edit}",
    "QuotaExceeded": "give the namespace a larger budget ({budget}), or end what holds it: {quota} shows who does",
    "NameTaken": "rename {name}, or delete the instance that has the name",
    "ImportFailed": "see why the code of {name} cannot be loaded ({logs}), correct it, and deploy it again",
    "CodeNotFound": "deploy the code of {name} again",
    "CodeDamaged": "deploy the code of {name} again",
    "CodeTooLarge": "leave out of the code of {name} what it does not need, and deploy it again",
    "TimedOut": "see what the code of {name} waits for while it is loaded ({logs}), correct it, and deploy it again",
    "CommandNotFound": "correct the command of {name}, or put its program into the code, and deploy it again",
    "BadRequirement": "correct the requirements of {name}, and deploy it again",
    "PackageNotFound": "correct the requirements of {name}, and deploy it again",
    "RequirementsConflict": "correct the requirements of {name}, and deploy it again",
    "PackageBuildFailed": "see why a package that {name} requires cannot be built ({logs}), or require a version of it "
    "that has a wheel",
    "IndexUnreachable": "see that the server reaches its package index: its network, or index-url and proxy of its pip "
    "configuration; {name} is tried again by itself",
    "IndexRefused": "correct the login for the package index in the server's pip configuration; {name} is tried again "
    "by itself",
    "CertificateNotTrusted": "name the CA of the package index in the server's pip configuration (cert in pip.conf, or "
    "PIP_CERT and `rota restart`); {name} is tried again by itself",
    "RequirementsFailed": "see what pip said ({logs}); correct the requirements of {name}, or the server's pip "
    "configuration",
    "RegionNotServed": "correct the regions of {name}, or leave them out: {edit}",
    "InvalidSchedule": "correct the cron or the time zone of {name}: {edit}",
    "InvalidTask": "correct what {name} makes tasks of: {edit}",
}
"""Advice by the reason of the condition."""
TO_CORRECT_SPAWNER = {
    "InvalidTask": TO_CORRECT["InvalidTask"],
    "TemplateError": "correct the template of {name}: {edit}",
    "ApiNotAllowed": "allow the API as {name} says, or correct its apiURL: {edit}",
    "CredentialsRefused": "put a token that is accepted into the Secret of {name}; it is tried again by itself",
    "Forbidden": "have the token of {name} let it see the repository, or correct its repo: {edit}",
    "NoSuchRepository": "correct the repo of {name}, or have its token see it: {edit}",
}
"""Advice about a TaskSpawner, by reason."""
TO_CORRECT_WORKSPACE = {
    "AuthenticationFailed": "put a login that is accepted into the Secret of {name}, or correct its repo: {edit}",
    "RepositoryNotFound": "correct the repo of {name}, or make the repository: {edit}",
    "RefNotFound": "correct the ref of {name}, or push it to the repository: {edit}",
    "SetupFailed": "correct the setup of {name}: {edit}",
    "TooLarge": "have {name} hold less: {edit}",
    "InvalidWorkspace": "correct {name}: {edit}",
}
"""Advice about a Workspace, by the reason that its users report."""
NO_PROGRAM = "ProgramNotFound"
TO_INSTALL = "install the program that {name} lacks, or correct its worker: {edit}"
IN_FILE = {
    "ImportFailed": "correct the code of {name}: {edit}",
}
"""Advice about objects that are in a file only and have no logs yet, by reason."""
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Finding(NamedTuple):
    """The facts about an object that advice is needed on."""

    id: str
    verdict: Verdict
    why: str = ""
    """The message of the object, or else its reason."""
    reason: str = ""
    referrer: str = ""
    """The node that refers to it, on the chain from the explained object; empty if it is that object."""
    field: str = ""
    """The field of the referrer."""
    engine: str = ""
    again_seconds: float | None = None
    others_queued: int = 0
    ended: bool = False
    """True if it has run and is finished; False if it is mere configuration."""
    finalizers: Sequence[str] = ()
    cycle: Sequence[str] = ()
    edge: str = ""
    """The field that makes it part of the cycle."""
    acting_known: bool = True
    file: str = ""
    """The place to correct it, as FILE:LINE, if it is not on a server."""


def advice(m: Finding) -> str:
    """Return the next thing to do; empty if there is none."""
    name = shown(m.id)
    if m.file and m.verdict in ("Failed", "Settled", "Working"):
        return _to_correct(m) or f"correct {name}: {_edit(m)}"
    match m.verdict:
        case "Ready":
            return ""
        case "Missing":
            return _create(m)
        case "Cycle":
            return _break(m)
        case "Failed":
            return _rerun_by_hand(m) if m.ended else f"correct {name}{_reason_note(m)}: {_edit(m)}"
        case "Error":
            return f"correct what the error of {name} says{_reason_note(m)}; it is tried again by itself{_when(m)}"
        case "Spinning":
            command = f"`rota get {_target(m.id)} -o yaml --show-managed-fields`"
            return f"find out who keeps changing {name} or what it refers to: {command} names the writers"
        case "Deleting":
            return _await_deletion(m)
        case "Hidden":
            return f"ask somebody who may read {name}: `rota why {_target(m.id)}`"
        case "Unattended":
            if not m.acting_known:
                return (
                    f"nothing here acts on {name}: `rota get lease rota-controllers -n rota-system` shows who runs its "
                    "controllers"
                )
            return f"nothing here acts on {name}: see that whatever reports on a {_kind_name(m.id)} runs"
        case "Gated":
            return (
                f"nothing for now: all that {name} refers to is there; this version has nothing that takes a "
                f"{_kind_name(m.id)} further"
            )
        case "Blocked":
            return f"go on from {name}: `rota why {_target(m.id)}`"
        case "Settled" | "Working" if todo := _to_correct(m):
            return todo
        case "Settled":
            return f"wait for {name}{_reason_note(m)}: `rota why {_target(m.id)} --watch` tells when that changes"
    return _wait(m, name)


def _to_correct(m: Finding) -> str:
    """Return how to correct an object that cannot run as it is; empty if it may run by itself."""
    if m.reason == UNSERVED:
        return f"leave {shown(m.id)} out, or leave it as it is: nothing here carries it out"
    todo = _todo(m.id, m.reason)
    if todo and m.reason == CONFIGURATION and NO_PROGRAM in _parts(m.why):
        todo = TO_INSTALL
    if m.file:
        todo = IN_FILE.get(m.reason, todo)
    namespace = m.id.split("/", 2)[1]
    return todo.format(
        name=shown(m.id),
        logs=f"`rota logs {_target(m.id)}`",
        edit=_edit(m),
        budget=f"`rota edit quota/default -n {namespace}`",
        quota=f"`rota quota -n {namespace}`",
    )


def must_correct(id_: str, reason: str) -> bool:
    """Report whether an object with this reason stays unready until a person acts."""
    return bool(_todo(id_, reason))


def workspace_reason(reason: str, message: str) -> str:
    """Return the reason why an instance or pool cannot use its workspace; empty if its message has none."""
    found = (part for part in _parts(message) if part in TO_CORRECT_WORKSPACE) if reason == CONFIGURATION else ()
    return next(iter(found), "")


def _parts(message: str) -> list[str]:
    """Split a message: a runtime reports `REASON: message`, before which a pool puts names of instances."""
    return message.partition("\n")[0].split(": ")


def _todo(id_: str, reason: str) -> str:
    kind = kind_of(id_)
    if kind is not None and kind.name == "TaskSpawner":
        return TO_CORRECT_SPAWNER.get(reason, "")
    if kind is not None and kind.name == "Workspace":
        return TO_CORRECT_WORKSPACE.get(reason, "")
    return TO_CORRECT.get(reason, "") if kind is not None and kind.name in RUN else ""


def give_workers(pool: str) -> str:
    """Return advice about a pool with 0 replicas that requests wait for."""
    return f"give {shown(pool)} a worker: `rota scale {_object(pool)} --replicas=1{_place(pool)}`"


def _create(m: Finding) -> str:
    kind, name = kind_of(m.id), m.id.rpartition("/")[2]
    by_hand = CREATED_BY_HAND.get(kind.name) if kind is not None else None
    if by_hand:
        how = f"`kubectl create {by_hand} {name} --from-literal=KEY=VALUE{_place(m.id)}`"
    else:
        how = f"`rota apply -f FILE{_place(m.id)}`"
    return f"create {shown(m.id)}: {how}{_or_correct(m)}"


def _or_correct(m: Finding) -> str:
    if not m.referrer or not m.field:
        return ""
    if _is_fixed(kind_of(m.referrer), m.field):
        return f"; if the name in {m.field} is wrong, make {shown(m.referrer)} anew ({_replace(m.referrer)})"
    return f"; if the name in {m.field} is wrong, correct {shown(m.referrer)} ({_command_edit(m.referrer)})"


def _break(m: Finding) -> str:
    circle = " → ".join(map(shown, m.cycle))
    about = f"break the circle {circle}" if circle else f"break the circle that {shown(m.id)} is in"
    if not m.edge:
        return f"{about}: take one of its references out"
    if _is_fixed(kind_of(m.id), m.edge):
        return f"{about}: make {shown(m.id)} anew without {m.edge} ({_replace(m.id)})"
    return f"{about}: take {m.edge} out of {shown(m.id)} ({_edit(m)})"


def _rerun_by_hand(m: Finding) -> str:
    name = shown(m.id)
    return (
        f"see how {name} ended{_reason_note(m)}: `rota describe {_target(m.id)}`; then make it anew ({_replace(m.id)})"
    )


def _await_deletion(m: Finding) -> str:
    name = shown(m.id)
    then = f", then create it again: `rota apply -f FILE{_place(m.id)}`" if m.referrer else ""
    held = [one for one in m.finalizers if one not in (FOREGROUND, ORPHAN)]
    if held:
        them = ", ".join(held)
        return f"see that whoever put {them} on {name} lets go of it, or take it out ({_edit(m)}){then}"
    first = "what it owns is gone, and " if FOREGROUND in m.finalizers else ""
    return f"wait until {first}{name} is gone{then}"


def _wait(m: Finding, name: str) -> str:
    if m.engine == "running":
        return f"wait a moment: {name} is being looked at right now"
    if m.engine == "runnable":
        others = f", with {m.others_queued} others" if m.others_queued else ""
        return f"wait a moment: {name} is in the queue of its controller{others}"
    return f"wait: {name} is looked at again{_when(m) or ' by itself'}{_reason_note(m)}"


def _reason_note(m: Finding) -> str:
    return f" ({m.why})" if m.why else ""


def _when(m: Finding) -> str:
    return f" in {m.again_seconds:.0f} s" if m.again_seconds is not None else ""


def _replace(id_: str) -> str:
    return f"`rota delete {_target(id_)}`, then `rota apply -f FILE{_place(id_)}`"


def _edit(m: Finding) -> str:
    return f"edit {m.file}" if m.file else _command_edit(m.id)


def _command_edit(id_: str) -> str:
    return f"`rota edit {_target(id_)}`"


def _target(id_: str) -> str:
    """Return an object as commands name it."""
    return f"{_object(id_)}{_place(id_)}"


def _object(id_: str) -> str:
    kind = kind_of(id_)
    return f"{kind.singular if kind else id_}/{id_.rpartition('/')[2]}"


def _place(id_: str) -> str:
    namespace = id_.split("/", 2)[1]
    return f" -n {namespace}" if namespace not in ("", "default") else ""


def _kind_name(id_: str) -> str:
    kind = kind_of(id_)
    return kind.name if kind is not None else id_


def _is_fixed(kind: Kind | None, path: str) -> bool:
    """Report whether a field is immutable."""
    if kind is None:
        return False
    spec = object_schema(kind)["properties"].get("spec", {})
    top = path.removeprefix("spec.").partition(".")[0].partition("[")[0]
    return any(rule["message"] == f"{top} is immutable" for rule in spec.get("x-kubernetes-validations", ()))
