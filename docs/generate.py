"""Writes the reference pages that are derived from the code: `make docs`. A test fails when one is out of date."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rota.api import KINDS, Kind
from rota.api.schema import REFERS, Schema, object_schema
from rota.cli.app import HELP, build
from rota.cli.command import GLOBAL_OPTIONS

KINDS_PAGE = Path(__file__).parent / "reference" / "kinds.md"
CLI_PAGE = Path(__file__).parent / "reference" / "cli.md"
SECURITY_PAGE = Path(__file__).parent.parent / "SECURITY.md"
ATTACKS = Path(__file__).parent.parent / "tests" / "attacks"

# The files of tests/attacks, without `test_`, by what they go for.
AREAS = {
    "out of a sandbox, into the host": "boxes builds isolation kept_agents kept_trees kernel network ports "
    "sandbox holds",
    "files, the disk, the home": "disk hoards home host_files late_entries logs mirrors names names_run recovering "
    "trees",
    "tokens, roles, every way in": "callers doors edge_matrix matrix privileges inputs reach revoking roles small_ways",
    "other tenants": "branches budgets images limits looks owners slots standing_still turns",
    "cells, hubs, clusters": "cells cluster_hubs fleets foreign_objects",
    "what is sent, and how much of it": "answers batches crowds graphs hijacked_runners lies memory nesting "
    "outcomes pipelining quantities request_turns requests shapes sizes system template_sizes templates terminals "
    "under_way watchers websockets",
    "the audit trail": "leaving trail",
}
TABLE_BEGIN, TABLE_END = "| attack on | tests |\n", "\n\n"

PREAMBLE = """\
# The kinds

This page is generated from the types. `make docs` writes it.

Every object has `apiVersion`, `kind` and `metadata`, as in Kubernetes. A field marked *required* must be set. A default
is stored by the server when the field is omitted. `status` is written by Rota.
"""


def kinds_page() -> str:
    """The reference of all kinds."""
    kinds = sorted(KINDS.values(), key=lambda kind: (not kind.custom, kind.name))
    index = "\n".join(f"- [{kind.name}](#{kind.name.lower()}): {_first_line(kind)}" for kind in kinds)
    return "\n".join([PREAMBLE, index, "", *(_kind_section(kind) for kind in kinds)])


def _first_line(kind: Kind) -> str:
    return (kind.type.__doc__ or "").strip().splitlines()[0]


def _kind_section(kind: Kind) -> str:
    facts = [
        f"`{kind.api_version}`",
        "namespaced" if kind.namespaced else "cluster-wide",
        f"`{kind.plural}`" + "".join(f", `{short}`" for short in kind.short_names),
    ]
    if kind.scale:
        facts.append("has a scale")
    if kind.made:
        facts.append("made by Rota")
    lines = [f"## {kind.name}", "", (kind.type.__doc__ or "").strip(), "", " · ".join(facts), ""]
    schema = object_schema(kind)
    rules = list(_rules(schema, ""))
    lines += ["| field | type | what it is |", "| --- | --- | --- |", *_rows(schema, ""), ""]
    if rules:
        lines += ["Rules:", "", *(f"- `{path or 'the object'}`: {message}" for path, message in rules), ""]
    return "\n".join(lines)


def _rows(schema: Schema, path: str) -> Iterator[str]:
    required = schema.get("required", [])
    for name, prop in schema["properties"].items():
        here = f"{path}{name}"
        if here in ("apiVersion", "kind", "metadata"):
            continue
        notes = [prop.get("description", "").rstrip(".") + "."]
        if name in required:
            notes.append("*Required.*")
        if "default" in prop and not isinstance(prop["default"], dict):
            notes.append(f"Default: `{_shown(prop['default'])}`.")
        if "enum" in prop:
            notes.append("One of " + ", ".join(f"`{value}`" for value in prop["enum"]) + ".")
        if refers := prop.get(REFERS):
            notes.append(f"Refers to [{refers}](#{refers.lower()}).")
        notes.extend(_bounds(prop))
        yield f"| `{here}` | {_type(prop)} | {' '.join(notes)} |"
        inner = prop.get("items", prop.get("additionalProperties", prop))
        if "properties" in inner and inner.get("description") != schema.get("description"):
            suffix = "[]." if "items" in prop else ".*." if "additionalProperties" in prop else "."
            yield from _rows(inner, here + suffix)


def _type(prop: Schema) -> str:
    if prop.get("x-kubernetes-int-or-string"):
        return "quantity"
    if prop.get("format") == "date-time":
        return "time"
    if prop.get("type") == "array":
        keys = prop.get("x-kubernetes-list-map-keys")
        return f"list of {_type(prop['items'])}" + (f", by {', '.join(keys)}" if keys else "")
    if "additionalProperties" in prop:
        return f"map of {_type(prop['additionalProperties'])}"
    return str(prop.get("type", "any"))


def _bounds(prop: Schema) -> Iterator[str]:
    low, high = prop.get("minimum"), prop.get("maximum")
    if low is not None and high is not None:
        yield f"From {low} to {high}."
    elif low is not None:
        yield f"At least {low}."
    if "maxItems" in prop:
        yield f"At most {prop['maxItems']} items."
    if "maxProperties" in prop:
        yield f"At most {prop['maxProperties']} keys."


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, prop in schema.get("properties", {}).items():
        inner = prop.get("items", prop.get("additionalProperties", prop))
        suffix = "[]" if "items" in prop else ""
        yield from _rules(inner, f"{path}.{name}{suffix}" if path else f"{name}{suffix}")


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


CLI_PREAMBLE = """\
# The command line

This page is generated from the commands. `make docs` writes it.

{about}
Exit codes: 0 done, 1 refused or failed, 2 bad usage or invalid manifests. `rota diff` has its own, which it names.
Results go to standard output and everything else to standard error. Colour is for terminals; `NO_COLOR` turns it off.

`rota --install-completion` teaches your shell to complete commands, flags and kinds. `rota --version` prints the
version, as `rota version` does.
"""


class Option(NamedTuple):
    """A flag, as it is written, and what its help says."""

    name: str
    flags: str
    help: str


class Documented:
    """A command and what its help says."""

    def __init__(self, name: str, command: Any) -> None:
        self.name = name
        self.help = (command.help or "").strip()
        self.arguments = [(p.human_readable_name, p.help or "") for p in command.params if _is(p, "argument")]
        options = [Option(p.name, _flags(p), _described(p)) for p in command.params if _is(p, "option")]
        self.shared = [option for option in options if option.name in GLOBAL_OPTIONS]
        self.options = [option for option in options if option.name not in (*GLOBAL_OPTIONS, "help")]


def commands() -> list[Documented]:
    """Every command, those of groups by their full name."""
    import typer

    return list(_walk("rota", typer.main.get_command(build())))


def _walk(name: str, command: Any) -> Iterator[Documented]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield Documented(name, command)
        return
    for inner_name, inner_command in inner.items():
        yield from _walk(f"{name} {inner_name}", inner_command)


def _is(param: Any, type_: str) -> bool:
    return bool(param.param_type_name == type_)


def _flags(param: Any) -> str:
    names = sorted((*param.opts, *param.secondary_opts), key=lambda flag: (len(flag) > 2, flag.startswith("--no-")))
    takes = "" if param.is_flag else f" {_value(param)}"
    return ", ".join(names) + takes


def _value(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    if choices:
        return "\\|".join(getattr(choice, "value", str(choice)) for choice in choices)
    return str(param.metavar or "VALUE")


def _described(param: Any) -> str:
    default = getattr(param.default, "value", param.default)
    shown = default not in (None, "", False) and not isinstance(default, bool)
    return (param.help or "") + (f" Default: `{default}`." if shown else "")


def cli_page() -> str:
    """The reference of all commands."""
    found = commands()
    index = "\n".join(f"- [{c.name}](#{c.name.replace(' ', '-')}): {_first_sentence(c.help)}" for c in found)
    shared = [f"`--{name}`" for name in GLOBAL_OPTIONS]
    about = HELP.partition("\n\n")[2]
    lines = [CLI_PREAMBLE.format(about=about), "## Global options", ""]
    lines += [f"Every command takes {', '.join(shared[:-1])} and {shared[-1]}, before its name or after it.", ""]
    lines += [*_option_table(found[0].shared), "", "## Commands", "", index, ""]
    for documented in found:
        lines += _command_section(documented)
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".") + "."


def _command_section(documented: Documented) -> list[str]:
    usage = " ".join([documented.name, *(name for name, _ in documented.arguments), "[options]"])
    lines = [f"### {documented.name}", "", " ".join(documented.help.split()), "", f"    {usage}", ""]
    lines += [f"- `{name}`: {help_}" for name, help_ in documented.arguments]
    lines += [""] if documented.arguments else []
    return [*lines, *_option_table(documented.options), ""] if documented.options else lines


def _option_table(options: list[Option]) -> list[str]:
    return ["| option | what it does |", "| --- | --- |", *(f"| `{each.flags}` | {each.help} |" for each in options)]


def security_page() -> str:
    """The page with its table of attacks."""
    begin, _, rest = SECURITY_PAGE.read_text().partition(TABLE_BEGIN)
    return begin + attacks_table() + TABLE_END + rest.partition(TABLE_END)[2]


def attacks_table() -> str:
    """The number of attack tests of each area. One that is tried in several ways counts once."""
    counts = {path.stem.removeprefix("test_"): _tests_of(path) for path in sorted(ATTACKS.glob("test_*.py"))}
    rows = []
    for area, names in AREAS.items():
        rows.append(f"| {area} | {sum(counts.pop(name) for name in names.split())} |")
    if counts:
        raise ValueError(f"put {', '.join(counts)} into one of the AREAS")
    total = sum(_tests_of(path) for path in ATTACKS.glob("test_*.py"))
    return TABLE_BEGIN + "\n".join(["| --- | --- |", *rows, f"| all | {total} |"])


def _tests_of(path: Path) -> int:
    tests = (ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        isinstance(node, tests) and node.name.startswith("test_") for node in ast.walk(ast.parse(path.read_text()))
    )


if __name__ == "__main__":
    KINDS_PAGE.parent.mkdir(parents=True, exist_ok=True)
    for page, text in ((KINDS_PAGE, kinds_page()), (CLI_PAGE, cli_page()), (SECURITY_PAGE, security_page())):
        page.write_text(text)
        print(f"wrote {page.name}")
