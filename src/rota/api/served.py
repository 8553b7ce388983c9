"""The kinds that the API serves.

Beside the kinds of Rota (`KINDS`) these are other versions of them, their CustomResourceDefinitions, which are
read-only, self-reviews, and kinds that every Kubernetes API server has and of which Rota never has objects. Those
are served as empty lists, because stock tools list them unconditionally: `kubectl cluster-info` lists Services,
and `kubectl apply --prune` Deployments.
"""

from typing import Annotated

from rota.api.events import EVENTS_EVENT
from rota.api.kind import KINDS, READ_VERBS, Column, Kind
from rota.api.meta import Object
from rota.api.model import JSONObject, doc
from rota.api.reviews import REVIEWS

GroupVersion = tuple[str, str]


class CustomResourceDefinition(Object):
    """The definition of one of Rota's own kinds. Made by Rota, and read-only."""

    spec: Annotated[JSONObject, doc("The kind's names, versions and schema, as in Kubernetes.")]
    status: Annotated[JSONObject | None, doc("Status of the definition: it is always served.")] = None


class Foreign(Object):
    """An object of a kind that a Kubernetes cluster has and Rota does not."""

    spec: Annotated[JSONObject | None, doc("As in Kubernetes.")] = None
    status: Annotated[JSONObject | None, doc("As in Kubernetes.")] = None


DEFINITION = CustomResourceDefinition.api = Kind(
    name="CustomResourceDefinition",
    plural="customresourcedefinitions",
    type=CustomResourceDefinition,
    group="apiextensions.k8s.io",
    version="v1",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    columns=(Column("Created At", ".metadata.creationTimestamp"),),
    custom=False,
    verbs=READ_VERBS,
)


SELECTABLE = {
    "Job": (".status.successful",),
    "Node": (".spec.unschedulable",),
    "Pod": (
        ".spec.hostNetwork",
        ".spec.nodeName",
        ".spec.restartPolicy",
        ".spec.schedulerName",
        ".spec.serviceAccountName",
        ".status.nominatedNodeName",
        ".status.phase",
        ".status.podIP",
        ".status.podIPs",
    ),
    "ReplicationController": (".status.replicas",),
    "Service": (".spec.clusterIP", ".spec.type"),
}
"""Selectable fields of kinds of which Rota never has objects."""


def _foreign(group: str, plural: str, name: str, *short: str, namespaced: bool = True) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        type=Foreign,
        group=group,
        version="v1",
        namespaced=namespaced,
        short_names=short,
        selectable=SELECTABLE.get(name, ()),
        custom=False,
        has_status=False,
        verbs=READ_VERBS,
    )


RUNS = "declare a WorkerPool, a Workload or a Task"
FOREIGN: dict[Kind, str] = {
    _foreign("", "endpoints", "Endpoints", "ep"): "call Functions at the address in their status",
    _foreign("", "nodes", "Node", "no", namespaced=False): "declare a Cell",
    _foreign("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc"): "set spec.storage of a WorkerPool",
    _foreign("", "persistentvolumes", "PersistentVolume", "pv", namespaced=False): "set spec.storage of a WorkerPool",
    _foreign("", "pods", "Pod", "po"): RUNS,
    _foreign("", "replicationcontrollers", "ReplicationController", "rc"): RUNS,
    _foreign("", "services", "Service", "svc"): "call Functions at the address in their status",
    _foreign("apps", "daemonsets", "DaemonSet", "ds"): RUNS,
    _foreign("apps", "deployments", "Deployment", "deploy"): RUNS,
    _foreign("apps", "replicasets", "ReplicaSet", "rs"): RUNS,
    _foreign("apps", "statefulsets", "StatefulSet", "sts"): RUNS,
    _foreign("batch", "cronjobs", "CronJob", "cj"): "declare a Schedule",
    _foreign("batch", "jobs", "Job"): "declare a Task",
    _foreign("networking.k8s.io", "ingresses", "Ingress", "ing"): "call Functions at the address in their status",
}
"""Kinds of which Rota never has objects, and advice on what to use instead."""

OTHER_VERSIONS = {(kind.api_version, kind.name): kind for kind in (EVENTS_EVENT,)}
"""Further versions of Rota's kinds, by apiVersion and kind."""
SERVED: tuple[Kind, ...] = (*KINDS.values(), *OTHER_VERSIONS.values(), DEFINITION, *REVIEWS, *FOREIGN)


def group_versions() -> list[GroupVersion]:
    """Return every served group and version, the core group first."""
    return sorted({(kind.group, kind.version) for kind in SERVED})


def kinds_of(group: str, version: str) -> list[Kind]:
    """Return the kinds of a group and version, ordered by their plural."""
    return sorted((kind for kind in SERVED if (kind.group, kind.version) == (group, version)), key=lambda k: k.plural)
