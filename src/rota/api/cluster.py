"""Kinds that Rota uses on a Kubernetes cluster and does not serve.

They have the fields that Rota reads or writes, without bounds: what another API server has admitted must be readable.
Other fields of a spec are lost by decoding, so Rota creates and patches these objects and never replaces one.
"""

from typing import Annotated

from msgspec import field

from rota.api.kind import BY_BUCKET, Kind, kind
from rota.api.meta import Object
from rota.api.model import JSONObject, Model, Time, doc


class ClusterCondition(Model):
    """One aspect of the state of a cluster's object."""

    type: Annotated[str, doc("Type of the condition, such as PodScheduled.")] = ""
    status: Annotated[str, doc("True, False or Unknown.")] = ""
    reason: Annotated[str, doc("Machine-readable reason for the status.")] = ""
    message: Annotated[str, doc("Human-readable message about the status.")] = ""
    last_transition_time: Annotated[Time | None, doc("Time at which the status last changed.")] = None


class StateRunning(Model):
    """State of a running container."""

    started_at: Annotated[Time | None, doc("Time at which the container was started.")] = None


class StateWaiting(Model):
    """State of a container that is not running yet."""

    reason: Annotated[str, doc("Machine-readable reason, such as ImagePullBackOff or CrashLoopBackOff.")] = ""
    message: Annotated[str, doc("Human-readable message.")] = ""


class StateTerminated(Model):
    """State of a terminated container."""

    exit_code: Annotated[int, doc("Exit status of the container.")] = 0
    signal: Annotated[int, doc("Signal that terminated the container, if one did.")] = 0
    reason: Annotated[str, doc("Machine-readable reason, such as Completed, Error or OOMKilled.")] = ""
    message: Annotated[str, doc("Human-readable message.")] = ""
    started_at: Annotated[Time | None, doc("Time at which the container was started.")] = None
    finished_at: Annotated[Time | None, doc("Time at which the container terminated.")] = None


class ContainerState(Model):
    """State of a container. One of the fields is set."""

    running: Annotated[StateRunning | None, doc("Set while the container runs.")] = None
    waiting: Annotated[StateWaiting | None, doc("Set while the container waits to run.")] = None
    terminated: Annotated[StateTerminated | None, doc("Set once the container has terminated.")] = None


class ContainerStatus(Model):
    """Status of a container, reported by its kubelet."""

    name: Annotated[str, doc("Name of the container.")]
    state: Annotated[ContainerState | None, doc("Current state of the container.")] = None
    last_state: Annotated[ContainerState | None, doc("Last termination state of the container.")] = None
    ready: Annotated[bool, doc("True while the readiness probe succeeds.")] = False
    started: Annotated[bool | None, doc("True once the startup probe has succeeded.")] = None
    restart_count: Annotated[int, doc("Number of restarts.")] = 0
    image: Annotated[str, doc("Image that the container runs.")] = ""
    image_id: Annotated[str, doc("Digest of that image.")] = field(default="", name="imageID")


class PodStatus(Model):
    """Status of a Pod."""

    phase: Annotated[str, doc("Pending, Running, Succeeded, Failed or Unknown.")] = ""
    reason: Annotated[str, doc("Machine-readable reason, such as Evicted or NodeLost.")] = ""
    message: Annotated[str, doc("Human-readable message.")] = ""
    conditions: Annotated[list[ClusterCondition], doc("Conditions of the Pod: PodScheduled, Ready and others.")] = []
    pod_ip: Annotated[str, doc("IP address of the Pod.")] = field(default="", name="podIP")
    start_time: Annotated[Time | None, doc("Time at which the kubelet acknowledged the Pod.")] = None
    init_container_statuses: Annotated[list[ContainerStatus], doc("Statuses of the init containers and sidecars.")] = []
    container_statuses: Annotated[list[ContainerStatus], doc("Statuses of the containers.")] = []


@kind("pods", group="", version="v1", served=False)
class Pod(Object):
    """Containers that run together on one node of a cluster."""

    spec: Annotated[JSONObject, doc("Containers, volumes and scheduling gates, as in Kubernetes.")] = {}
    status: Annotated[PodStatus | None, doc("Status reported by the cluster.")] = None


class VolumeClaimStatus(Model):
    """Status of a PersistentVolumeClaim."""

    phase: Annotated[str, doc("Pending, Bound or Lost.")] = ""
    capacity: Annotated[dict[str, str], doc("Capacity of the bound volume.")] = {}
    conditions: Annotated[list[ClusterCondition], doc("Conditions of the claim, such as Resizing.")] = []


@kind("persistentvolumeclaims", group="", version="v1", served=False)
class PersistentVolumeClaim(Object):
    """Storage that outlives the Pods that use it."""

    spec: Annotated[JSONObject, doc("Size, class and access modes, as in Kubernetes.")] = {}
    status: Annotated[VolumeClaimStatus | None, doc("Status reported by the cluster.")] = None


@kind("services", group="", version="v1", served=False)
class Service(Object):
    """A name in a cluster's DNS for the Pods that it selects."""

    spec: Annotated[JSONObject, doc("Selector and ports, as in Kubernetes.")] = {}


class NodeSpec(Model):
    """Desired state of a node."""

    unschedulable: Annotated[bool, doc("If true, no new Pods are scheduled on the node.")] = False
    taints: Annotated[list[JSONObject], doc("Taints that Pods must tolerate, as in Kubernetes.")] = []


class NodeStatus(Model):
    """Status of a node, reported by its kubelet."""

    conditions: Annotated[list[ClusterCondition], doc("Conditions of the node: Ready, MemoryPressure and others.")] = []
    capacity: Annotated[dict[str, str], doc("Total resources of the node.")] = {}
    allocatable: Annotated[dict[str, str], doc("Resources of the node that are available to Pods.")] = {}


@kind("nodes", group="", version="v1", namespaced=False, served=False)
class Node(Object):
    """A machine of a Kubernetes cluster."""

    spec: Annotated[NodeSpec | None, doc("Desired state of the node.")] = None
    status: Annotated[NodeStatus | None, doc("Status reported by the kubelet.")] = None


@kind("networkpolicies", group="networking.k8s.io", version="v1", has_status=False, served=False)
class NetworkPolicy(Object):
    """Destinations that the selected Pods may reach."""

    spec: Annotated[JSONObject, doc("Selector and rules, as in Kubernetes.")] = {}


@kind("serviceaccounts", group="", version="v1", has_status=False, served=False)
class ServiceAccount(Object):
    """The identity of Pods towards the API server."""

    automount_service_account_token: Annotated[
        bool | None, doc("If true, a token is mounted into Pods that do not say otherwise.")
    ] = None


class TokenReviewSpec(Model):
    """The token to review."""

    token: Annotated[str, doc("Token to review.")]
    audiences: Annotated[
        list[str], doc("Audiences that the token must be intended for. Omitted: the API server's.")
    ] = []


class ReviewedUser(Model):
    """Owner of a token."""

    username: Annotated[str, doc("Name of the user, such as `system:serviceaccount:NAMESPACE:NAME`.")] = ""
    uid: Annotated[str, doc("UID of the user.")] = ""
    groups: Annotated[list[str], doc("Groups of the user.")] = []
    extra: Annotated[dict[str, list[str]], doc("Further facts, such as the Pod that the token is bound to.")] = {}


class TokenReviewStatus(Model):
    """Result of the review."""

    authenticated: Annotated[bool, doc("True if the token is valid.")] = False
    user: Annotated[ReviewedUser | None, doc("Owner of the token.")] = None
    audiences: Annotated[list[str], doc("Requested audiences that the token is intended for.")] = []
    error: Annotated[str, doc("Error that prevented the review.")] = ""


@kind(
    "tokenreviews",
    group="authentication.k8s.io",
    version="v1",
    namespaced=False,
    has_status=False,
    verbs=("create",),
    served=False,
)
class TokenReview(Object):
    """A request to authenticate a token. It is answered and never stored."""

    spec: Annotated[TokenReviewSpec, doc("Token to review.")]
    status: Annotated[TokenReviewStatus | None, doc("Result of the review.")] = None


class AccessedResource(Model):
    """A request for objects, to be authorized."""

    namespace: Annotated[str, doc("Namespace. Empty: all, or a cluster-scoped kind.")] = ""
    verb: Annotated[str, doc("Verb of the request.")] = ""
    group: Annotated[str, doc("API group of the resource.")] = ""
    resource: Annotated[str, doc("Resource, such as `claims`.")] = ""
    subresource: Annotated[str, doc("Subresource, such as `exec`.")] = ""
    name: Annotated[str, doc("Name of the object. Empty: all objects.")] = ""


class SubjectAccessReviewSpec(Model):
    """User and request to authorize."""

    resource_attributes: Annotated[AccessedResource, doc("Request to authorize.")]
    user: Annotated[str, doc("Name of the user.")] = ""
    uid: Annotated[str, doc("UID of the user.")] = ""
    groups: Annotated[list[str], doc("Groups of the user.")] = []
    extra: Annotated[dict[str, list[str]], doc("Further facts about the user, as in a TokenReview.")] = {}


class SubjectAccessReviewStatus(Model):
    """Result of the authorization."""

    allowed: Annotated[bool, doc("True if the request is allowed.")] = False
    denied: Annotated[bool, doc("True if the request is denied regardless of other authorizers.")] = False
    reason: Annotated[str, doc("Reason for the decision.")] = ""
    evaluation_error: Annotated[str, doc("Error that prevented the decision.")] = ""


@kind(
    "subjectaccessreviews",
    group="authorization.k8s.io",
    version="v1",
    namespaced=False,
    has_status=False,
    verbs=("create",),
    served=False,
)
class SubjectAccessReview(Object):
    """A request to authorize a user. It is answered and never stored."""

    spec: Annotated[SubjectAccessReviewSpec, doc("User and request to authorize.")]
    status: Annotated[SubjectAccessReviewStatus | None, doc("Result of the authorization.")] = None


USED: dict[str, Kind] = {each.name: each for each in BY_BUCKET.values() if not each.served}
"""The kinds above, by name."""
