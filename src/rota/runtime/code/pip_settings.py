"""The server operator's pip configuration, as a build in a sandbox gets it. No file of a tenant is read here.

Settings come from where pip itself takes them: its configuration files, and then the environment of the server. Only
settings on where packages come from and how they are fetched are used. Files that they name (certificates,
constraints) are copied into the sandbox, local folders of packages are bound there read-only.
"""

from __future__ import annotations

import configparser
import netrc
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from rota.runtime.sandbox import Bind

FILES = ("cert", "client-cert", "constraint", "build-constraint")
"""Options that name local files; certificates may be folders too."""
SOURCES = ("index-url", "extra-index-url", "find-links")
"""Options that name addresses, or local folders and files."""
PLAIN = (
    "no-index", "trusted-host", "proxy", "timeout", "default-timeout", "retries", "prefer-binary", "only-binary",
    "no-binary", "pre", "use-feature", "use-deprecated", "uploaded-prior-to",
)  # fmt: skip
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name certificates."""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Variables that name proxies, in capitals or not."""
SECTIONS = ("global", "install")
"""Sections of a configuration file that are used; later ones override earlier ones."""
INSIDE = "/rota/pip"
"""The folder in a sandbox for files and folders that settings name."""
FILE_BYTES_MAX = 16 * 1024 * 1024
"""The largest file that is copied into the sandbox."""
OTHERS_MAY = 0o5
"""Mode bits that a folder must grant to others: if Rota is root, builds run as another user."""


class Settings(NamedTuple):
    """The configuration, environment and files for a build."""

    config: str
    """The content of a configuration file."""
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    """Contents by path in the sandbox. They may hold secrets."""
    binds: tuple[Bind, ...]
    """Folders and files of packages that the sandbox sees read-only."""
    secrets: frozenset[str]
    """Passwords and tokens, which must not appear in logs and messages."""
    notes: tuple[str, ...]
    """Notes for people on settings that are not used."""


def settings(environment: Mapping[str, str], *, home: Path, is_sandboxed: bool) -> Settings:
    """Return the current settings. `home`: the home of Rota, which is hidden from every build."""
    options = _options(environment)
    making = _Making(environment, home, is_sandboxed=is_sandboxed)
    lines = [f"{name} = {making.value(name, value)}" for name, value in options.items()]
    env = {name: environment[name] for one in PROXIES for name in (one, one.lower()) if environment.get(name)}
    for name in CERTIFICATES:
        if environment.get(name) and (place := making.shown(name, environment[name])):
            env[name] = place
    if login := making.logins(options):
        env["NETRC"] = login
    for value in (*env.values(), options.get("proxy", "")):
        making.hide(value)
    # In both sections, since Python's own pip.conf, which is read inside too, may have either.
    config = "".join(f"[{section}]\n" + "".join(f"{line}\n" for line in lines) for section in SECTIONS)
    return Settings(
        config, env, making.files, tuple(making.binds), frozenset(making.secrets), tuple(dict.fromkeys(making.notes))
    )


def _options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the configuration files and the environment, without those that Rota ignores."""
    found: dict[str, str] = {}
    for section in SECTIONS:
        for file in _config_files(environment):
            found.update(_section(file, section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            found[_normal(name.removeprefix("PIP_"))] = value
    known = {*FILES, *SOURCES, *PLAIN}
    # One line each: pip splits several values at any white space.
    return {name: " ".join(value.split()) for name, value in found.items() if name in known and value.strip()}


def _config_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that pip reads; later ones override earlier ones."""
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    user = Path(environment.get("HOME") or Path.home())
    for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    if not named or not Path(named).exists():
        yield user / ".pip" / "pip.conf"
        yield Path(environment.get("XDG_CONFIG_HOME") or user / ".config", "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)


def _section(file: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    return {_normal(name): value for name, value in parser.items(section)} if parser.has_section(section) else {}


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


class _Making:
    """Collects the files, binds, secrets and notes of the settings."""

    def __init__(self, environment: Mapping[str, str], home: Path, *, is_sandboxed: bool) -> None:
        self._environment = environment
        self._home = home
        self._is_sandboxed = is_sandboxed
        self._places: dict[Path, str] = {}
        self.files: dict[str, bytes] = {}
        self.binds: list[Bind] = []
        self.secrets: set[str] = set()
        self.notes: list[str] = []

    def value(self, name: str, value: str) -> str:
        """Return the value of an option with its local paths replaced by paths in the sandbox."""
        if name in FILES:
            return " ".join(filter(None, (self.shown(name, each) for each in value.split())))
        if name in SOURCES:
            return " ".join(filter(None, (self._source(name, each) for each in value.split())))
        return value

    def _source(self, name: str, value: str) -> str:
        self.hide(value)
        address = urlsplit(value)
        if address.scheme in ("", "file"):
            place = self.shown(name, unquote(address.path) if address.scheme else value)
            return f"file://{place}" if place and address.scheme else place
        return value

    def shown(self, name: str, value: str) -> str:
        """Return the path in the sandbox of a local file or folder, or an empty string if it is not shown there."""
        path = Path(os.path.expanduser(value)).absolute()
        if not path.exists():
            self._note(name, f"there is no {path}")
            return ""
        if not self._is_sandboxed:
            return str(path)
        if path not in self._places:
            place = f"{INSIDE}/{len(self._places)}-{''.join(c for c in path.name if c.isalnum() or c in '.-_')}"
            is_shown = (
                self._bind(name, path, place) if path.is_dir() or name in SOURCES else self._copy(name, path, place)
            )
            self._places[path] = place if is_shown else ""
        return self._places[path]

    def _bind(self, name: str, path: Path, place: str) -> bool:
        """Bind a file or folder into the sandbox. Returns False if a build must not see it."""
        real = path.resolve()
        homes = (self._home, Path(self._environment.get("HOME") or Path.home()))
        if any(one.resolve().is_relative_to(real) for one in homes):
            self._note(name, f"{path} is not shown to builds, since a home is in it; name a folder of packages alone")
            return False
        if os.geteuid() == 0 and real.is_dir() and real.stat().st_mode & OTHERS_MAY != OTHERS_MAY:
            self._note(name, f"builds may not read {path}; chmod o+rx {path}")
        self.binds.append(Bind(real, place))
        return True

    def _copy(self, name: str, path: Path, place: str) -> bool:
        """Copy a file into the sandbox: its user may lack the right to read the original."""
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise OSError(f"it has more than {FILE_BYTES_MAX} bytes")
            self.files[place] = path.read_bytes()
        except OSError as error:
            self._note(name, f"{path} cannot be read: {error.strerror or error}")
            return False
        return True

    def _note(self, name: str, what: str) -> None:
        self.notes.append(f"{name} of the server's pip configuration: {what}")

    def logins(self, options: Mapping[str, str]) -> str:
        """Make a netrc file of the operator's logins for the used indexes. Return its path; empty without logins."""
        addresses = [urlsplit(one) for name in SOURCES for one in options.get(name, "").split()]
        hosts = {one.hostname for one in addresses if one.hostname}
        home = Path(self._environment.get("HOME") or Path.home())
        named = self._environment.get("NETRC")
        lines = []
        for file in (Path(named),) if named else (home / ".netrc", home / "_netrc"):
            try:
                known = netrc.netrc(str(file)).hosts if hosts else {}
            except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
                continue
            for host in sorted(hosts & known.keys()):
                login, _, password = known[host]
                self.secrets.add(password)
                lines.append(f"machine {host} login {login} password {password}\n")
            break
        if not lines:
            return ""
        if not self._is_sandboxed:
            return str(file)
        place = f"{INSIDE}/netrc"
        self.files[place] = "".join(lines).encode()
        return place

    def hide(self, value: str) -> None:
        """Note the secrets in an address."""
        try:
            address = urlsplit(value)
            # A user without a password is a token.
            secret = address.password or address.username
        except ValueError:
            return
        found = {secret, unquote(secret)} if secret else set()
        if address.query:
            found.add(address.query)
        self.secrets |= found
