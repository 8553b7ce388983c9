"""The help of the command line, and messages for what cannot be parsed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from rota.cli.session import bad_usage

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of typer's errors about a command line. It has no public name."""
SENTENCE_LENGTH_MAX = 400
"""Length of a command's first sentence in the list of commands: all of it, on as many lines as it takes."""
NEAR_RATIO = 0.75
"""The least similarity of a suggested name that begins with another letter."""
NAMED_MAX = 20
"""Names that are listed after an unknown one."""


class Group(TyperGroup):
    """A group of commands whose help is sorted by purpose. An unknown command is answered with the known ones."""

    purposes: Mapping[str, Collection[str]] = {}
    """The commands below each heading. A group without headings has one list."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of commands with nothing cut off. Long descriptions continue on the next line."""
        width = max(map(len, self.commands), default=0)
        for heading, names in (self.purposes or {"Commands": [*self.commands]}).items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(SENTENCE_LENGTH_MAX))
                for name in names
                if name in self.commands and not self.commands[name].hidden
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. Raises CommandError with all names if there is none of that name."""
        if args and not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.commands:
            raise bad_usage(
                f'{ctx.command_path} has no command "{args[0]}"{did_you_mean(args[0], self.commands)}\n'
                f"there are {', '.join(self.commands)}"
            )
        return super().resolve_command(ctx, args)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: the nearest known one, or nothing."""
    names = {name.lower(): name for name in known}
    near = next((one for one in get_close_matches(text.lower(), names) if _is_near(text.lower(), one)), None)
    return f"; did you mean {names[near]}?" if near else ""


def _is_near(text: str, name: str) -> bool:
    """Report whether a name may be a slip for another. People seldom mistype the first letter."""
    return text[:1] == name[:1] or SequenceMatcher(a=name, b=text).ratio() >= NEAR_RATIO


def listed(names: Iterable[str]) -> str:
    """Return sorted names, up to a limit."""
    ordered = sorted(names)
    return ", ".join(ordered[:NAMED_MAX]) + (f", … ({len(ordered)} in all)" if len(ordered) > NAMED_MAX else "")


def unparsed(error: Any, begun: str) -> str:
    """Describe a command line that typer cannot parse. `begun` is the command, for errors that do not name it."""
    ctx = error.ctx
    command = ctx.command_path if ctx is not None else begun
    more = f"`{command} --help` tells how it is used"
    if hasattr(error, "possibilities"):
        options = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
        near = did_you_mean(error.option_name, options)
        return f"{command} has no option {error.option_name}{near}\nit has {', '.join(options)}; {more}"
    if hasattr(error, "param_type") and error.param is not None:
        what = error.param.make_metavar(ctx) if error.param.param_type_name == "argument" else error.param.opts[0]
        return f"{command}: {what} is missing\n{more}"
    if getattr(error, "param", None) is not None:
        return f"{_named(error.param)}: {_plain(error.message)}\n{more}"
    return f"{command}: {_plain(error.message)}\n{more}"


def _named(param: Any) -> str:
    return max(param.opts, key=len) if param.param_type_name == "option" else str(param.human_readable_name)


def _plain(message: str) -> str:
    text = message.strip().rstrip(".").replace("is not a valid int range", "is not a whole number")
    return text[:1].lower() + text[1:]
