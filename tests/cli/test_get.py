"""`rota get`, `describe` and `events`: what people see."""

from __future__ import annotations

import io
import json
import signal
from typing import Any

import pytest

from rota import Client
from rota.manifest import loads
from tests.cli.conftest import Terminal, pool, until


@pytest.fixture
def two(rota: Terminal) -> Terminal:
    async def make(client: Client) -> None:
        made = await client.create({**pool("agents", replicas=2), "metadata": {"name": "agents", "labels": {"a": "b"}}})
        ready = {"type": "Ready", "status": "False", "reason": "Starting", "message": "one of two is up"}
        await client.update_status({**made, "status": {"phase": "Scaling", "idle": 1, "conditions": [ready]}})
        await client.create(pool("builders"))

    rota.act(make)
    return rota


def test_objects_are_shown_as_a_table(two: Terminal) -> None:
    ran = two("get", "workerpools")
    assert ran.lines[0] == ["NAME", "PHASE", "READY", "IDLE", "BUSY", "WAITING", "AGE"]
    assert [line[:4] for line in ran.lines[1:]] == [["agents", "Scaling", "0", "1"], ["builders", "-", "-", "-"]]
    assert (ran.code, ran.err) == (0, "")


def test_columns_are_aligned(two: Terminal) -> None:
    heading, first, second = two("get", "wp").out.splitlines()
    assert heading.index("PHASE") == first.index("Scaling") == second.index("-")


@pytest.mark.parametrize("word", ["wp", "WP", "workerpool", "WorkerPool", "workerpools", "workerpools.rota.dev"])
def test_a_kind_goes_by_any_of_its_names(two: Terminal, word: str) -> None:
    assert len(two("get", word).lines) == 3


def test_wide_adds_columns(two: Terminal) -> None:
    ran = two("get", "wp", "-o", "wide")
    assert ran.lines[0][6:9] == ["REPLICAS", "UPDATED", "REASON"]
    assert "Starting" in ran.lines[1]


def test_objects_are_found_by_name(two: Terminal) -> None:
    for words in (("wp", "agents"), ("wp/agents",)):
        assert [line[0] for line in two("get", *words).lines] == ["NAME", "agents"]


def test_several_kinds_are_several_tables(two: Terminal) -> None:
    ran = two("get", "ns,wp")
    assert [line[0] for line in ran.lines if line] == [
        "NAME",
        "namespace/default",
        "NAME",
        "workerpool.rota.dev/agents",
        "workerpool.rota.dev/builders",
    ]


def test_objects_of_several_kinds_are_found_by_name(two: Terminal) -> None:
    assert two("get", "wp/agents", "ns/default", "-o", "name").out == "workerpool.rota.dev/agents\nnamespace/default\n"


def test_all_means_all_of_rotas_kinds(two: Terminal) -> None:
    assert two("get", "all", "-o", "name").out.split() == ["workerpool.rota.dev/agents", "workerpool.rota.dev/builders"]


def test_labels_and_fields_select(two: Terminal) -> None:
    assert two("get", "wp", "-l", "a=b", "-o", "name").out == "workerpool.rota.dev/agents\n"
    assert two("get", "wp", "--field-selector", "metadata.name=builders", "-o", "name").out.endswith("/builders\n")


def test_all_namespaces_adds_the_namespace(two: Terminal) -> None:
    ran = two("get", "wp", "-A")
    assert ran.lines[0][:2] == ["NAMESPACE", "NAME"]
    assert ran.lines[1][:2] == ["default", "agents"]


def test_a_namespace_is_taken_before_and_after_the_command(two: Terminal) -> None:
    for argv in (("-n", "other", "get", "wp"), ("get", "wp", "-n", "other")):
        ran = two(*argv)
        said = "nothing found: there is no namespace other; there are: default\n"
        assert (ran.code, ran.out, ran.err) == (0, "", said)


def test_one_named_object_is_printed_by_itself_and_several_as_a_list(two: Terminal) -> None:
    one = json.loads(two("get", "wp", "agents", "-o", "json").out)
    assert (one["kind"], one["spec"]["replicas"]) == ("WorkerPool", 2)
    many = json.loads(two("get", "wp", "-o", "json").out)
    assert (many["kind"], len(many["items"])) == ("List", 2)


def test_yaml_is_a_manifest_again(two: Terminal) -> None:
    (manifest,) = loads(two("get", "wp", "builders", "-o", "yaml").out, "printed")
    assert manifest.name == "builders"


def test_managed_fields_are_shown_when_asked_for(two: Terminal) -> None:
    assert "managedFields" not in two("get", "wp", "-o", "json").out
    assert "managedFields" in two("get", "wp", "-o", "json", "--show-managed-fields").out


def test_a_template_picks_values(two: Terminal) -> None:
    assert two("get", "wp", "agents", "-o", "jsonpath={.spec.replicas}").out == "2\n"
    assert two("get", "wp", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"!"}{end}').out == "agents!builders!\n"


def test_custom_columns_make_a_table(two: Terminal) -> None:
    ran = two("get", "wp", "-o", "custom-columns=WHO:.metadata.name,N:.spec.replicas")
    assert ran.lines == [["WHO", "N"], ["agents", "2"], ["builders", "-"]]


def test_what_is_not_there_is_told_beside_what_is(two: Terminal) -> None:
    ran = two("get", "wp", "agents", "nobody")
    assert ran.code == 1
    assert ran.lines[1][0] == "agents"
    assert ran.err == 'error: workerpools.rota.dev "nobody" not found\n  namespace default has agents, builders\n'


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("get",), "name a kind, such as workerpools"),
        (("get", "workerpol"), 'no kind "workerpol"; did you mean workerpool?'),
        (("get", "nothing"), "instances (inst), "),
        (("get", "wp,task", "a"), "with several, write KIND/NAME"),
        (("get", "wp/"), "is not KIND/NAME"),
        (("get", "wp", "a", "-l", "b=c"), "a name does not go with --selector"),
        (("get", "wp", "-o", "xml"), "-o xml: there are wide, json"),
        (("get", "wp", "-o", "jsonpath={.a["), "is not closed"),
        (("get", "wp", "-o", "custom-columns=NAME"), "is not HEADING:PATH"),
        (("get", "wp", "--frobnicate"), "rota get has no option --frobnicate\n  it has --output, "),
    ],
)
def test_bad_usage_is_2_and_says_what_there_is(rota: Terminal, argv: tuple[str, ...], says: str) -> None:
    ran = rota(*argv)
    assert ran.code == 2 and ran.out == ""
    assert says in ran.err


def test_a_selector_that_cannot_be_read_is_refused(rota: Terminal) -> None:
    ran = rota("get", "wp", "-l", "a in b")
    assert ran.code == 1 and ran.err.startswith("error: ")


def test_a_watch_goes_on_with_changes_until_ctrl_c(two: Terminal) -> None:
    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        await until(screen, "builders")
        await client.create(pool("late"))
        await until(screen, "late")
        signal.raise_signal(signal.SIGINT)

    ran = two("get", "wp", "-w", meanwhile=meanwhile)
    assert (ran.code, ran.err) == (130, "")
    assert [line[0] for line in ran.lines] == ["NAME", "agents", "builders", "late"]


def test_a_watch_of_one_object_tells_of_no_other(two: Terminal) -> None:
    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        await until(screen, "agents")
        await client.create(pool("late"))
        await client.patch(type_of(client), "agents", {"metadata": {"labels": {"x": "y"}}})
        await until(screen, "agents\nworkerpool.rota.dev/agents")
        signal.raise_signal(signal.SIGINT)

    ran = two("get", "wp", "agents", "-w", "-o", "name", meanwhile=meanwhile)
    assert ran.out == "workerpool.rota.dev/agents\nworkerpool.rota.dev/agents\n"


def type_of(_: Client) -> Any:
    from rota.api import WorkerPool

    return WorkerPool.api


def test_what_would_steer_a_terminal_is_made_visible(rota: Terminal) -> None:
    async def make(client: Client) -> None:
        made = await client.create(pool())
        await client.update_status({**made, "status": {"conditions": [condition]}})

    condition = {"type": "Ready", "status": "False", "reason": "\x1b[2Jgone", "message": "a\nb"}
    rota.act(make)
    for argv in (("get", "wp", "-o", "wide"), ("describe", "wp", "agents")):
        ran = rota(*argv)
        assert "\x1b" not in ran.out
        assert "\\x1b[2Jgone" in ran.out


# Describe and events.


async def report(client: Client, name: str, reason: str, at: str) -> None:
    about = {"kind": "WorkerPool", "apiVersion": "rota.dev/v1alpha1", "name": name, "namespace": "default"}
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{reason.lower()}"},
            "involvedObject": about,
            "reason": reason,
            "message": f"it was {reason}",
            "type": "Normal",
            "lastTimestamp": at,
        }
    )


@pytest.fixture
def reported(two: Terminal) -> Terminal:
    async def make(client: Client) -> None:
        await report(client, "agents", "Second", "2024-01-01T00:00:02Z")
        await report(client, "agents", "First", "2024-01-01T00:00:01Z")
        await report(client, "builders", "Other", "2024-01-01T00:00:03Z")

    two.act(make)
    return two


def test_events_come_in_the_order_in_which_they_happened(reported: Terminal) -> None:
    ran = reported("events")
    assert [line[2] for line in ran.lines[1:]] == ["First", "Second", "Other"]
    assert ran.lines[1][3:] == ["workerpool/agents", "it", "was", "First"]


def test_events_of_one_object(reported: Terminal) -> None:
    assert [line[2] for line in reported("events", "--for", "wp/builders").lines[1:]] == ["Other"]


def test_events_are_followed(reported: Terminal) -> None:
    async def meanwhile(client: Client, screen: io.StringIO) -> None:
        await until(screen, "Second")
        await report(client, "agents", "Third", "2024-01-01T00:00:04Z")
        await until(screen, "Third")
        signal.raise_signal(signal.SIGINT)

    ran = reported("events", "--for", "wp/agents", "-w", meanwhile=meanwhile)
    assert [line[2] for line in ran.lines[1:]] == ["First", "Second", "Third"]


def test_no_events_is_said(rota: Terminal) -> None:
    assert rota("events").err == "no events in namespace default\n"


def test_describe_shows_fields_conditions_and_events(two: Terminal) -> None:
    async def make(client: Client) -> None:
        uid = (await client.get(type_of(client), "agents"))["metadata"]["uid"]
        await client.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "WorkerPool", "name": "agents", "namespace": "default", "uid": uid},
                "reason": "Scaled",
                "message": "one more",
                "type": "Normal",
            }
        )

    two.act(make)
    text = two("describe", "wp", "agents").out
    for part in (
        "name: agents\nnamespace: default\nkind: WorkerPool, rota.dev/v1alpha1\n",
        "labels:\n  a: b\n",
        "spec:\n  worker:\n    type: shell\n  replicas: 2\n",
        "status:\n  phase: Scaling\n  idle: 1\n",
        "conditions:\n  TYPE    STATUS   REASON     SINCE   MESSAGE\n",
        "  Ready   False    Starting   -       one of two is up\n",
        "events:\n  LAST SEEN   TYPE     REASON   COUNT   MESSAGE\n  <unknown>   Normal   Scaled   1       one more\n",
    ):
        assert part in text


def test_describe_does_not_show_secrets(rota: Terminal) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"key": "hunter2"}}
    rota.act(lambda client: client.create(secret))
    text = rota("describe", "secret", "s").out
    assert "key: 12 characters" in text and "aHVudGVyMg" not in text


def test_events_of_an_object_that_is_not_there_are_refused_and_one_without_events_is_named(rota: Terminal) -> None:
    rota("apply", "-f", rota.write("p.json", json.dumps(pool())))
    for more in ((), ("-A",)):
        missing = rota("events", "--for", "wp/doesnotexist", *more)
        assert missing.code == 1 and 'workerpools.rota.dev "doesnotexist" not found' in missing.err
        quiet = rota("events", "--for", "wp/agents", *more)
        assert (quiet.code, quiet.out, quiet.err) == (0, "", "no events of workerpool/agents\n")
    assert rota("events").err == "no events in namespace default\n"


def test_results_are_on_standard_output_and_all_else_on_standard_error(two: Terminal) -> None:
    found, nothing, unknown, misused = (
        two(*argv) for argv in (("get", "wp"), ("get", "tasks"), ("get", "wp", "nobody"), ("get", "nonsense"))
    )
    assert [bool(ran.out) for ran in (found, nothing, unknown, misused)] == [True, False, False, False]
    assert [bool(ran.err) for ran in (found, nothing, unknown, misused)] == [False, True, True, True]
    assert [ran.code for ran in (found, nothing, unknown, misused)] == [0, 0, 1, 2]
