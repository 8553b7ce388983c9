"""Find the server that a client connects to, and its credentials there.

Explicit settings win. Without them, `ROTA_CONTEXT` names a context of the kubeconfig. Without that, it is the local
server. `KUBECONFIG` says where contexts are looked up, but never selects a server by itself: it is set for other tools,
and a command for a laptop's Rota must not reach somebody's cluster.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rota.client.credentials import Credential, Credentials, Fixed, TokenFile
from rota.client.heads import authority
from rota.client.pool import Endpoint

DEFAULT_NAMESPACE = "default"
HOME_DEFAULT = "~/.rota"
SOCKET_NAME = "rota.sock"
KUBECONFIG_DEFAULT = "~/.kube/config"
IN_CLUSTER = "in-cluster"
"""The context of a pod: the server of the cluster that it runs in."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

PathLike = str | os.PathLike[str]


class KubeconfigError(ValueError):
    """The settings do not lead to a server or a credential. The message says what is wrong, and where."""


@dataclass(frozen=True)
class Tls:
    """Settings for the verification of the server's certificate."""

    authority: str = ""
    """Trusted certificates, as PEM; empty for those that the system trusts."""
    insecure: bool = False
    """Skip the verification."""

    def context(self, certificate: str) -> ssl.SSLContext:
        """Return a context for connections with this client certificate, if there is one."""
        try:
            context = ssl.create_default_context(cadata=self.authority or None)
        except ssl.SSLError as error:
            raise KubeconfigError(f"the certificate authority is not in PEM form: {error}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate:
            _load(context, certificate)
        return context


def _load(context: ssl.SSLContext, certificate: str) -> None:
    import tempfile

    # OpenSSL takes a key from a file only. It is readable by its owner, and gone at once.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError as error:
            raise KubeconfigError(
                f"the client certificate and its key are not PEM that belong together: {error}"
            ) from None


@dataclass(frozen=True)
class Target:
    """A server, and the credentials for it."""

    endpoint: Endpoint
    tls: Tls | None = None
    """None for a connection without TLS."""
    credentials: Credentials = field(default_factory=lambda: Fixed(Credential()))
    namespace: str = DEFAULT_NAMESPACE
    path: str = ""
    """The path below which the server's paths are."""


def find(home: PathLike | None, kubeconfig: PathLike | None, context: str | None) -> Target:
    """Return the target that the settings name. Raises KubeconfigError."""
    if home is not None and (kubeconfig is not None or context is not None):
        raise KubeconfigError("a home means the server that runs there: say either home, or kubeconfig and context")
    if home is None and kubeconfig is None and context is None:
        context = os.environ.get("ROTA_CONTEXT") or None
    if kubeconfig is None and context is None:
        return local(home)
    if kubeconfig is None and context == IN_CLUSTER:
        return in_cluster()
    # Parsed here: lightkube's loader takes a quarter of a second to import and adds nothing to what is here. It knows
    # one file only; its plugins have no expiry, time-out, certificates or v1 protocol; it refuses auth-provider too.
    from rota.client.kubeconfig import read

    paths = [str(kubeconfig)] if kubeconfig is not None else _kubeconfigs()
    return read([Path(path).expanduser() for path in paths], context)


def _kubeconfigs() -> list[str]:
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return named or [KUBECONFIG_DEFAULT]


def local(home: PathLike | None = None) -> Target:
    """Return the server of this machine, over its Unix socket. It identifies the user by the socket, without a
    token."""
    place = Path(home if home is not None else os.environ.get("ROTA_HOME") or HOME_DEFAULT).expanduser()
    path = str(place / SOCKET_NAME)
    return Target(Endpoint(url=f"unix:{path}", socket_path=path))


def in_cluster(account: Path = SERVICE_ACCOUNT) -> Target:
    """Return the API server of the cluster in which this process runs, with the pod's service account."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise KubeconfigError(
            "this is no pod of a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    try:
        trusted = (account / "ca.crt").read_text()
        namespace = (account / "namespace").read_text().strip()
    except OSError as error:
        raise KubeconfigError(f"the pod has no service account: {error}") from None
    url = f"https://{authority(host, int(port))}"
    return Target(Endpoint(url, host, int(port)), Tls(trusted), TokenFile(account / "token", Credential()), namespace)


def at_url(
    url: str, *, tls: Tls, credentials: Credentials, server_name: str = "", namespace: str = DEFAULT_NAMESPACE
) -> Target:
    """Return the server at a URL. Raises KubeconfigError."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    try:
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise KubeconfigError(f"{url!r} is no address of a server: {error}") from None
    if parts.scheme not in ("https", "http") or not host or parts.username or parts.query:
        raise KubeconfigError(f"{url!r} is no address of a server: it has the form https://HOST:PORT/PATH")
    endpoint = Endpoint(parts.geturl(), host, port, server_name)
    return Target(endpoint, tls if parts.scheme == "https" else None, credentials, namespace, parts.path.rstrip("/"))
