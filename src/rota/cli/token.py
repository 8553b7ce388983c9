"""`rota token`."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from rota.cli.command import command
from rota.cli.options import seconds
from rota.cli.output import Columns, note, print_line
from rota.cli.session import Session, bad_usage
from rota.cli.usage import Group

app = typer.Typer(cls=Group, help="Make, list and revoke the tokens that the server accepts.", rich_markup_mode=None)


class Scope(StrEnum):
    """The scope of a token."""

    admin = "admin"
    deployer = "deployer"
    viewer = "viewer"
    worker = "worker"
    cell = "cell"
    function = "function"


@app.callback(no_args_is_help=True)
def _group() -> None:
    """Make, list and revoke the tokens that the server accepts."""


@command
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of its holder.")],
    scope: Annotated[
        Scope | None, typer.Option("--scope", help="Choose the scope; without a scope or a role, viewer.")
    ] = None,
    role: Annotated[
        str, typer.Option("--role", metavar="ROLE", help="Choose a Role of the namespace instead of a scope.")
    ] = "",
    expires: Annotated[
        str,
        typer.Option("--expires", metavar="SPAN", help="End the token after this time: 12h, 30d; without it, never."),
    ] = "",
    ttl: Annotated[
        str,
        typer.Option(
            "--ttl",
            metavar="SPAN",
            help="Sign a token for this time, 24h at most, that is not stored or listed: 15m, 1h.",
        ),
    ] = "",
) -> None:
    """Make a token, with -n for one namespace only. It is printed once, alone, on standard output."""
    from rota.cli.gateway import call

    if scope is not None and role:
        raise bad_usage("a token has a scope or a role: say --scope or --role")
    if expires and ttl:
        raise bad_usage("a token has one end: say --expires or --ttl")
    asked: dict[str, Any] = {"name": name, "scope": "role" if role else (scope or Scope.viewer).value}
    if session.settings.namespace:
        asked["namespace"] = session.settings.namespace
    if expires:
        asked["expiresSeconds"] = max(1, int(seconds(expires)))
    if ttl:
        asked["ttlSeconds"] = max(1, int(seconds(ttl)))
    async with session.client() as client:
        if role:
            asked |= {"role": role, "namespace": client.namespace}
        made = await call(client, "POST", "/v1/tokens", asked)
    allows = f"role {role}" if role else f"scope {asked['scope']}"
    note(f"token {made['id']}, {allows}; it is not shown again. `rota token revoke {made['id']}` ends it.")
    print_line(made["token"])


@command
async def list_(session: Session) -> None:
    """List the tokens."""
    from rota.cli.gateway import call

    async with session.client() as client:
        found = (await call(client, "GET", "/v1/tokens"))["tokens"]
    if not found:
        note("there are no tokens")
        return
    table = Columns(["ID", "NAME", "SCOPE", "ROLE", "NAMESPACE", "AGE", "EXPIRES"])
    fields = ("id", "name", "scope", "role", "namespace")
    table.write([[*(each.get(n) or "" for n in fields), *_times(each)] for each in found])


def _times(token: dict[str, Any]) -> list[str]:
    from rota.api.table import age, duration

    now = time.time()
    texts = []
    for name in ("created", "expires"):
        value = token.get(name)
        if isinstance(value, int | float) and value:
            texts.append(duration(now - value) if value <= now else f"in {duration(value - now)}")
        else:
            texts.append(age(value, now) if value else "")
    return texts


@command
async def revoke(
    session: Session, identity: Annotated[str, typer.Argument(metavar="ID", help="The token, as `list` shows it.")]
) -> None:
    """Revoke a token. It ends at once."""
    from urllib.parse import quote

    from rota.cli.gateway import call

    async with session.client() as client:
        await call(client, "DELETE", f"/v1/tokens/{quote(identity, safe='')}")
    print_line(f"token {identity} revoked")


app.command("create")(create)
app.command("list")(list_)
app.command("revoke")(revoke)
