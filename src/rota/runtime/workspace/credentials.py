"""Credentials for one process of git, from the values of a Secret."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from rota.runtime.workspace.failures import WorkspaceError

# The user name that hosts of repositories accept with a token.
TOKEN_USER = "x-access-token"
IN_MEMORY = Path("/dev/shm")
HELPER = (
    '!f() { test "$1" = get && printf \'username=%s\\npassword=%s\\n\' "$ROTA_GIT_USERNAME" "$ROTA_GIT_PASSWORD"; }; f'
)
MASK = "***"


class Credentials(NamedTuple):
    """The values of a Secret of type basic-auth or ssh-auth, or a token alone."""

    username: str = ""
    password: str = ""
    private_key: str = ""
    known_hosts: str = ""
    authority: str = ""

    @classmethod
    def from_secret(cls, values: Mapping[str, str]) -> Credentials:
        password = values.get("password") or values.get("token", "")
        username = values.get("username") or (TOKEN_USER if password else "")
        for value in (username, password):
            # Git reads one value per line.
            if any(character in value for character in "\r\n\0"):
                raise WorkspaceError("InvalidWorkspace", "a user name or password must be a single line")
        return cls(
            username.strip(),
            password,
            values.get("ssh-privatekey", ""),
            values.get("known_hosts", ""),
            values.get("ca.crt", ""),
        )

    def mask(self, text: str) -> str:
        for secret in filter(None, (self.password, self.private_key)):
            text = text.replace(secret, MASK)
        return text


def without_credentials(url: str) -> tuple[str, Mapping[str, str]]:
    """Split a repository's address into the address without login, and the login under the keys of a Secret.

    Raises WorkspaceError for an address that cannot be read.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # Not with the address, which may hold a password.
        raise WorkspaceError("InvalidWorkspace", "the repository's address cannot be read: check its host") from None
    if parts.scheme == "ssh":
        if parts.password is not None:
            raise WorkspaceError("InvalidWorkspace", "an ssh address must not hold a password; use a Secret with a key")
        return url, {}
    if parts.username is None and parts.password is None:
        return url, {}
    values = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), values


@contextlib.contextmanager
def signed_in(
    url: str, credentials: Credentials, known_hosts: Path, ssh: str, proxy_command: str = "none"
) -> Iterator[dict[str, str]]:
    """Yield the variables that let one git process sign in at this address, and at no other host."""
    with tempfile.TemporaryDirectory(prefix="rota-git-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        parts = urlsplit(url)
        if parts.scheme == "ssh":
            command = _ssh(credentials, Path(folder), known_hosts, ssh, proxy_command)
            yield {"GIT_SSH_COMMAND": command, "GIT_SSH_VARIANT": "ssh"}
            return
        settings = {}
        if credentials.password:
            settings[f"credential.{parts.scheme}://{parts.netloc}.helper"] = HELPER
        if credentials.authority:
            settings["http.sslCAInfo"] = str(_written(Path(folder, "ca.crt"), credentials.authority))
        variables = as_environment(settings)
        if credentials.password:
            variables |= {"ROTA_GIT_USERNAME": credentials.username, "ROTA_GIT_PASSWORD": credentials.password}
        yield variables


def as_environment(settings: Mapping[str, str], first: int = 0) -> dict[str, str]:
    """Return git settings as environment variables. They override every file, and do not show in arguments."""
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for index, (key, value) in enumerate(settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return variables


def _ssh(credentials: Credentials, folder: Path, known_hosts: Path, ssh: str, proxy_command: str) -> str:
    """Return the ssh command. Its options override all files of the user that Rota runs as.

    If the Secret has no known hosts, the key of a host is accepted at the first connection, and must not change later.
    """
    strict = "yes" if credentials.known_hosts else "accept-new"
    if credentials.known_hosts:
        known_hosts = _written(folder / "known_hosts", credentials.known_hosts)
    options = {
        "BatchMode": "yes",
        "IdentityAgent": "none",
        "IdentitiesOnly": "yes",
        "ProxyCommand": proxy_command,
        "PermitLocalCommand": "no",
        "ClearAllForwardings": "yes",
        "StrictHostKeyChecking": strict,
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "ConnectTimeout": "30",
    }
    if credentials.private_key:
        options["IdentityFile"] = str(_written(folder / "key", credentials.private_key.rstrip("\n") + "\n"))
    else:
        options["IdentityFile"] = "none"
    words = [ssh, "-F", "/dev/null", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    return shlex.join(words)


def _written(path: Path, content: str) -> Path:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
    return path
