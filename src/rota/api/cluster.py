"""Kinds that Rota uses on a Kubernetes cluster and does not serve.

They have the fields that Rota reads or writes, without bounds: what another API server has admitted must be readable.
What a spec has beside those is the cluster's, so objects are created and patched, and never written back as a whole.
"""

from typing import Annotated

from msgspec import field

from rota.api.kind import BY_BUCKET, Kind, kind
from rota.api.meta import Condition, Object
from rota.api.model import JSONObject, Model, Time, doc


class StateRunning(Model):
    """A container that runs."""

    started_at: Annotated[Time | None, doc("When it was started.")] = None


class StateWaiting(Model):
    """A container that does not run yet."""

    reason: Annotated[str, doc("Why, as one word: ImagePullBackOff, CrashLoopBackOff.")] = ""
    message: Annotated[str, doc("Why, as a sentence.")] = ""


class StateTerminated(Model):
    """A container that has ended."""

    exit_code: Annotated[int, doc("Its exit code.")] = 0
    signal: Annotated[int, doc("The signal that ended it, if one did.")] = 0
    reason: Annotated[str, doc("Why, as one word: Completed, Error, OOMKilled.")] = ""
    message: Annotated[str, doc("Why, as a sentence.")] = ""
    started_at: Annotated[Time | None, doc("When it was started.")] = None
    finished_at: Annotated[Time | None, doc("When it ended.")] = None


class ContainerState(Model):
    """One of these."""

    running: Annotated[StateRunning | None, doc("It runs.")] = None
    waiting: Annotated[StateWaiting | None, doc("It does not run yet.")] = None
    terminated: Annotated[StateTerminated | None, doc("It has ended.")] = None


class ContainerStatus(Model):
    """What a kubelet says of a container."""

    name: Annotated[str, doc("The name of the container.")]
    state: Annotated[ContainerState | None, doc("What it does now.")] = None
    last_state: Annotated[ContainerState | None, doc("How it ended last.")] = None
    ready: Annotated[bool, doc("Whether its readiness probe succeeds.")] = False
    started: Annotated[bool | None, doc("Whether its startup probe has succeeded.")] = None
    restart_count: Annotated[int, doc("How often it was started again.")] = 0
    image: Annotated[str, doc("The image that it runs.")] = ""
    image_id: Annotated[str, doc("The digest of that image.")] = field(default="", name="imageID")


class PodStatus(Model):
    """What a cluster says of a Pod."""

    phase: Annotated[str, doc("Pending, Running, Succeeded, Failed or Unknown.")] = ""
    reason: Annotated[str, doc("Why, as one word: Evicted, NodeLost.")] = ""
    message: Annotated[str, doc("Why, as a sentence.")] = ""
    conditions: Annotated[list[Condition], doc("PodScheduled, Ready and others.")] = []
    pod_ip: Annotated[str, doc("Its address.")] = field(default="", name="podIP")
    start_time: Annotated[Time | None, doc("When its kubelet took it.")] = None
    init_container_statuses: Annotated[list[ContainerStatus], doc("Of its init containers and sidecars.")] = []
    container_statuses: Annotated[list[ContainerStatus], doc("Of its containers.")] = []


@kind("pods", group="", version="v1", served=False)
class Pod(Object):
    """Containers that a cluster runs together on one node."""

    spec: Annotated[JSONObject, doc("Its containers, volumes and scheduling gates, as in Kubernetes.")] = {}
    status: Annotated[PodStatus | None, doc("What the cluster says of it.")] = None


class VolumeClaimStatus(Model):
    """What a cluster says of a claim of storage."""

    phase: Annotated[str, doc("Pending, Bound or Lost.")] = ""
    capacity: Annotated[dict[str, str], doc("What it has got.")] = {}
    conditions: Annotated[list[Condition], doc("Whether it is being resized, and others.")] = []


@kind("persistentvolumeclaims", group="", version="v1", served=False)
class PersistentVolumeClaim(Object):
    """Storage that outlives the Pods that use it."""

    spec: Annotated[JSONObject, doc("Its size, class and access modes, as in Kubernetes.")] = {}
    status: Annotated[VolumeClaimStatus | None, doc("What the cluster says of it.")] = None


@kind("services", group="", version="v1", served=False)
class Service(Object):
    """A name in a cluster's DNS for the Pods that it selects."""

    spec: Annotated[JSONObject, doc("Its selector and ports, as in Kubernetes.")] = {}


class NodeSpec(Model):
    """What is said of a node."""

    unschedulable: Annotated[bool, doc("Whether no more Pods are to be put on it.")] = False
    taints: Annotated[list[JSONObject], doc("What Pods have to tolerate to be put on it, as in Kubernetes.")] = []


class NodeStatus(Model):
    """What a kubelet says of its node."""

    conditions: Annotated[list[Condition], doc("Ready, and what it is short of.")] = []
    capacity: Annotated[dict[str, str], doc("What it has.")] = {}
    allocatable: Annotated[dict[str, str], doc("What it has for Pods.")] = {}


@kind("nodes", group="", version="v1", namespaced=False, served=False)
class Node(Object):
    """A machine of a cluster."""

    spec: Annotated[NodeSpec | None, doc("Whether Pods are put on it.")] = None
    status: Annotated[NodeStatus | None, doc("What its kubelet says.")] = None


@kind("networkpolicies", group="networking.k8s.io", version="v1", has_status=False, served=False)
class NetworkPolicy(Object):
    """What the Pods that it selects may reach."""

    spec: Annotated[JSONObject, doc("Its selector and rules, as in Kubernetes.")] = {}


@kind("serviceaccounts", group="", version="v1", has_status=False, served=False)
class ServiceAccount(Object):
    """Whom Pods are for the API server."""

    automount_service_account_token: Annotated[bool | None, doc("Whether Pods get a token unasked.")] = None


class TokenReviewSpec(Model):
    """A token to be looked at."""

    token: Annotated[str, doc("The token.")]
    audiences: Annotated[list[str], doc("For whom it has to be meant; without any: for the API server.")] = []


class ReviewedUser(Model):
    """Whose a token is."""

    username: Annotated[str, doc("The name, as `system:serviceaccount:NAMESPACE:NAME`.")] = ""
    uid: Annotated[str, doc("The identity in time.")] = ""
    groups: Annotated[list[str], doc("The groups.")] = []
    extra: Annotated[dict[str, list[str]], doc("More, as the Pod that a token is bound to.")] = {}


class TokenReviewStatus(Model):
    """What a token is."""

    authenticated: Annotated[bool, doc("Whether it is good.")] = False
    user: Annotated[ReviewedUser | None, doc("Whose it is.")] = None
    audiences: Annotated[list[str], doc("Those of the audiences asked for that it is meant for.")] = []
    error: Annotated[str, doc("Why it could not be looked at.")] = ""


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
    """The question whose a token is. Answered, and never stored."""

    spec: Annotated[TokenReviewSpec, doc("The token.")]
    status: Annotated[TokenReviewStatus | None, doc("The answer.")] = None


class AccessedResource(Model):
    """A request for objects."""

    namespace: Annotated[str, doc("The namespace; empty for all, and for cluster kinds.")] = ""
    verb: Annotated[str, doc("The verb.")] = ""
    group: Annotated[str, doc("The API group.")] = ""
    resource: Annotated[str, doc("The resource, as `claims`.")] = ""
    subresource: Annotated[str, doc("The subresource, as `exec`.")] = ""
    name: Annotated[str, doc("The name of the object; empty for all.")] = ""


class SubjectAccessReviewSpec(Model):
    """Who would like to do what."""

    resource_attributes: Annotated[AccessedResource, doc("What.")]
    user: Annotated[str, doc("Who, by name.")] = ""
    uid: Annotated[str, doc("Who, by identity in time.")] = ""
    groups: Annotated[list[str], doc("The groups of the user.")] = []
    extra: Annotated[dict[str, list[str]], doc("More of the user, as a TokenReview says it.")] = {}


class SubjectAccessReviewStatus(Model):
    """Whether somebody may do it."""

    allowed: Annotated[bool, doc("Whether it is allowed.")] = False
    denied: Annotated[bool, doc("Whether it is forbidden, whatever else would allow it.")] = False
    reason: Annotated[str, doc("Why.")] = ""
    evaluation_error: Annotated[str, doc("What kept the API server from knowing.")] = ""


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
    """The question whether somebody may do something. Answered, and never stored."""

    spec: Annotated[SubjectAccessReviewSpec, doc("Who would like to do what.")]
    status: Annotated[SubjectAccessReviewStatus | None, doc("The answer.")] = None


USED: dict[str, Kind] = {each.name: each for each in BY_BUCKET.values() if not each.served}
"""By name."""
