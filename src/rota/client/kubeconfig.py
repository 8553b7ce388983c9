"""Read kubeconfig files: their contexts, and what is needed to connect to each.

Of several files the first that has a setting wins, as in kubectl. Paths within a file are relative to it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rota.client.credentials import EXEC_GROUP, Credential, Credentials, Fixed, FromPlugin, Plugin, TokenFile
from rota.client.target import DEFAULT_NAMESPACE, KubeconfigError, Target, Tls, at_url

FILE_BYTES_MAX = 4 * 1024 * 1024

T = TypeVar("T")


class Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: Any = None


class Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: Exec | None = None
    auth_provider: Any = None
    act_as: str = msgspec.field(default="", name="as")
    act_as_uid: str = msgspec.field(default="", name="as-uid")
    act_as_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    act_as_extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")


class Context(msgspec.Struct, rename="kebab"):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class File(msgspec.Struct, rename="kebab"):
    """The content of one file."""

    current_context: str | None = None
    clusters: list[dict[str, Any]] | None = None
    users: list[dict[str, Any]] | None = None
    contexts: list[dict[str, Any]] | None = None


def read(paths: Sequence[Path], context: str | None) -> Target:
    """Return the target of a context, or of the current context. Raises KubeconfigError."""
    files = [(path, _load(path)) for path in paths if len(paths) == 1 or path.exists()]
    where = ", ".join(map(str, paths))
    name = context or next((file.current_context for _, file in files if file.current_context), None)
    if not name:
        raise KubeconfigError(f"{where} has no current context: say which of {_names(files, 'contexts')} is meant")
    _, chosen = _entry(files, "contexts", "context", name, Context)
    cluster_from, cluster = _entry(files, "clusters", "cluster", chosen.cluster, Cluster)
    user_from, user = _entry(files, "users", "user", chosen.user, User) if chosen.user else (paths[0], User())
    if cluster.proxy_url:
        raise KubeconfigError(f"{cluster_from}: cluster {chosen.cluster!r}: proxy-url is not supported")
    try:
        return at_url(
            cluster.server,
            tls=_tls(cluster_from, cluster),
            credentials=_credentials(user_from, user, cluster_from, cluster),
            server_name=cluster.tls_server_name,
            namespace=chosen.namespace or DEFAULT_NAMESPACE,
        )
    except KubeconfigError as error:
        raise KubeconfigError(f"context {name!r} of {where}: {error}") from None


def _load(path: Path) -> File:
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KubeconfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    if len(text) > FILE_BYTES_MAX:
        raise KubeconfigError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
    if text.startswith(b"{"):
        # Rota's own is JSON, which can be read without loading PyYAML.
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=File)
    return _load_yaml(path, text)


def _load_yaml(path: Path, text: bytes) -> File:
    import yaml

    try:
        return msgspec.convert(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}, File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise KubeconfigError(f"{path} is no kubeconfig: {error}") from None


def _entry(files: list[tuple[Path, File]], section: str, key: str, name: str, type_: type[T]) -> tuple[Path, T]:
    for path, file in files:
        for entry in getattr(file, section) or ():
            if entry.get("name") == name:
                try:
                    return path, msgspec.convert(entry.get(key) or {}, type_)
                except msgspec.ValidationError as error:
                    raise KubeconfigError(f"{path}: {key} {name!r}: {error}") from None
    where = ", ".join(str(path) for path, _ in files)
    raise KubeconfigError(f"{where} has no {key} {name!r}, only {_names(files, section)}")


def _names(files: list[tuple[Path, File]], section: str) -> str:
    names = {str(entry.get("name")): None for _, file in files for entry in getattr(file, section) or ()}
    return ", ".join(names) or "none"


def _tls(path: Path, cluster: Cluster) -> Tls:
    authority = _pem(path, cluster.certificate_authority_data, cluster.certificate_authority)
    return Tls(authority, cluster.insecure_skip_tls_verify)


def _credentials(path: Path, user: User, cluster_from: Path, cluster: Cluster) -> Credentials:
    certificate = _pem(path, user.client_certificate_data, user.client_certificate)
    key = _pem(path, user.client_key_data, user.client_key)
    if bool(certificate) != bool(key):
        raise KubeconfigError("a client certificate needs its key, and a key its certificate")
    pair = f"{certificate}\n{key}\n" if certificate else ""
    base = Credential(user.token, pair, tuple(_headers(user)))
    if user.token_file:
        return TokenFile(_relative(path, user.token_file), base)
    if user.exec is not None and not user.token:
        return FromPlugin(_plugin(path, user.exec, cluster_from, cluster), base)
    if user.auth_provider is not None and not user.token and not certificate:
        raise KubeconfigError("auth-provider is gone from Kubernetes since 1.26: use the provider's exec plugin")
    return Fixed(base)


def _headers(user: User) -> list[tuple[str, str]]:
    out = []
    if user.username and not user.token:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        out.append(("Authorization", f"Basic {basic}"))
    if user.act_as:
        out.append(("Impersonate-User", user.act_as))
    if user.act_as_uid:
        out.append(("Impersonate-Uid", user.act_as_uid))
    out += [("Impersonate-Group", group) for group in user.act_as_groups or ()]
    out += [(f"Impersonate-Extra-{key}", one) for key, values in (user.act_as_extra or {}).items() for one in values]
    return out


def _plugin(path: Path, said: Exec, cluster_from: Path, cluster: Cluster) -> Plugin:
    if said.api_version not in (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1"):
        raise KubeconfigError(
            f"the credential plugin {said.command} speaks {said.api_version!r}, which is not supported"
        )
    if said.interactive_mode == "Always":
        raise KubeconfigError(f"the credential plugin {said.command} wants to ask questions, which is not supported")
    info = None
    if said.provide_cluster_info:
        authority = _pem(cluster_from, cluster.certificate_authority_data, cluster.certificate_authority)
        info = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
            "config": _exec_config(cluster),
        }
        info = {key: value for key, value in info.items() if value}
    # A bare name is looked up in PATH; a path is relative to the file.
    command = str(_relative(path, said.command)) if "/" in said.command else said.command
    env = {entry["name"]: entry["value"] for entry in said.env or () if "name" in entry and "value" in entry}
    return Plugin(command, said.args or (), env, said.api_version, info, said.install_hint)


def _exec_config(cluster: Cluster) -> Any:
    found = [entry for entry in cluster.extensions or () if entry.get("name") == f"{EXEC_GROUP}/exec"]
    return found[0].get("extension") if found else None


def _pem(path: Path, data: str, file: str) -> str:
    """Return PEM data from base64 in the file itself, or else from another file."""
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise KubeconfigError(f"{path}: a certificate or key is not PEM in base64") from None
    if not file:
        return ""
    try:
        return _relative(path, file).read_text()
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read {file}: {error.strerror}") from None


def _relative(path: Path, to: str) -> Path:
    return path.parent / to
