"""The values of Secrets and ConfigMaps, for instances of this machine and for the credentials of controllers.

Never for what a cluster runs: a Pod refers to them, and the cluster resolves the references.
"""

from __future__ import annotations

import base64

from rota.api import ConfigMap, Object, Secret
from rota.api.parts import EnvVar
from rota.engine.objects import Objects, get
from rota.runtime.interface import Refused


def value(objects: Objects, obj: Object, one: EnvVar) -> str:
    """Return the value of an environment variable of an object. Raises `Refused`."""
    source = one.value_from
    if source is None:
        return one.value or ""
    if source.secret_key_ref is not None:
        named = source.secret_key_ref
        found = secret(objects, obj.metadata.namespace, named.name)
        where = f"Secret/{named.name}"
    else:
        assert source.config_map_key_ref is not None
        named = source.config_map_key_ref
        found = config(objects, obj.metadata.namespace, named.name)
        where = f"ConfigMap/{named.name}"
    if named.key not in found:
        raise Refused("ConfigurationError", f"env {one.name}: {where} has no key {named.key}")
    try:
        return found[named.key].decode()
    except UnicodeDecodeError:
        raise Refused("ConfigurationError", f"env {one.name}: key {named.key} of {where} is not text") from None


def secret(objects: Objects, namespace: str, name: str) -> dict[str, bytes]:
    """Return the values of a Secret; none if it does not exist."""
    found = get(objects, Secret, name, namespace)
    return {} if found is None else {key: base64.b64decode(each) for key, each in found.data.items()}


def config(objects: Objects, namespace: str, name: str) -> dict[str, bytes]:
    """Return the values of a ConfigMap; none if it does not exist."""
    found = get(objects, ConfigMap, name, namespace)
    if found is None:
        return {}
    binary = {key: base64.b64decode(each) for key, each in found.binary_data.items()}
    return {**{key: each.encode() for key, each in found.data.items()}, **binary}
