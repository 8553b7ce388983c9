"""Kubernetes' self-reviews: SelfSubjectReview, -AccessReview and -RulesReview. They are answered and never stored."""

from typing import Annotated

from rota.api.kind import Kind
from rota.api.meta import Object
from rota.api.model import JSONObject, Model, Text, doc

LIST_MAX = 1024


class UserInfo(Model):
    """Identity of a user."""

    username: Annotated[Text | None, doc("Name of the token.")] = None
    uid: Annotated[Text | None, doc("ID of the token.")] = None
    groups: Annotated[list[Text], doc("Groups: the scope of the token.", max_length=LIST_MAX)] = []
    extra: Annotated[
        dict[str, Annotated[list[Text], doc("", max_length=LIST_MAX)]],
        doc("Scope of the token, and its namespace.", max_length=LIST_MAX),
    ] = {}


class SelfSubjectReviewStatus(Model):
    """Result of the review."""

    user_info: Annotated[UserInfo | None, doc("Identity of the caller.")] = None


class SelfSubjectReview(Object):
    """A request for the caller's own identity."""

    status: Annotated[SelfSubjectReviewStatus | None, doc("Result of the review.")] = None


class ResourceAttributes(Model):
    """A request for objects. An empty or absent name, and `*` for the others, mean all."""

    namespace: Annotated[Text | None, doc("Namespace. Empty: all, or a cluster-scoped kind.")] = None
    verb: Annotated[Text | None, doc("Verb, such as `get` or `create`.")] = None
    group: Annotated[Text | None, doc("API group of the resource.")] = None
    version: Annotated[Text | None, doc("API version. Ignored.")] = None
    resource: Annotated[Text | None, doc("Resource, such as `workerpools`.")] = None
    subresource: Annotated[Text | None, doc("Subresource, such as `status`.")] = None
    name: Annotated[Text | None, doc("Name of the object.")] = None
    field_selector: Annotated[JSONObject | None, doc("Ignored: no permission depends on it.")] = None
    label_selector: Annotated[JSONObject | None, doc("Ignored: no permission depends on it.")] = None


class NonResourceAttributes(Model):
    """A request for a path that is not a resource."""

    path: Annotated[Text | None, doc("Path of the URL.")] = None
    verb: Annotated[Text | None, doc("HTTP method, in lower case.")] = None


class SelfSubjectAccessReviewSpec(Model):
    """Request to authorize. Exactly one of the fields must be set."""

    resource_attributes: Annotated[ResourceAttributes | None, doc("Request for objects.")] = None
    non_resource_attributes: Annotated[
        NonResourceAttributes | None, doc("Request for a path that is not a resource.")
    ] = None


class SelfSubjectAccessReviewStatus(Model):
    """Result of the authorization."""

    allowed: Annotated[bool | None, doc("True if the request is allowed.")] = None
    denied: Annotated[bool | None, doc("True if the request is denied regardless of other authorizers.")] = None
    reason: Annotated[Text | None, doc("Reason for the decision.")] = None
    evaluation_error: Annotated[Text | None, doc("Error that prevented the decision.")] = None


class SelfSubjectAccessReview(Object):
    """A request to authorize the caller."""

    spec: Annotated[SelfSubjectAccessReviewSpec, doc("Request to authorize.")]
    status: Annotated[SelfSubjectAccessReviewStatus | None, doc("Result of the authorization.")] = None


class SelfSubjectRulesReviewSpec(Model):
    """Namespace to list permissions of."""

    namespace: Annotated[Text | None, doc("Namespace to list permissions of.")] = None


class SelfSubjectRulesReviewStatus(Model):
    """Permissions of the caller in the namespace."""

    resource_rules: Annotated[list[JSONObject], doc("Permissions on resources.", max_length=LIST_MAX)] = []
    non_resource_rules: Annotated[
        list[JSONObject], doc("Permissions on paths that are not resources.", max_length=LIST_MAX)
    ] = []
    incomplete: Annotated[bool | None, doc("True if the list may be incomplete.")] = None
    evaluation_error: Annotated[Text | None, doc("Error that made the list incomplete.")] = None


class SelfSubjectRulesReview(Object):
    """A request for the caller's own permissions in a namespace."""

    spec: Annotated[SelfSubjectRulesReviewSpec, doc("Namespace to list permissions of.")]
    status: Annotated[SelfSubjectRulesReviewStatus | None, doc("Permissions of the caller.")] = None


def _review(type_: type[Object], plural: str, group: str) -> Kind:
    kind = Kind(
        name=type_.__name__,
        plural=plural,
        type=type_,
        group=group,
        version="v1",
        namespaced=False,
        has_status=False,
        custom=False,
        verbs=("create",),
    )
    type_.api = kind
    return kind


REVIEWS = (
    _review(SelfSubjectReview, "selfsubjectreviews", "authentication.k8s.io"),
    _review(SelfSubjectAccessReview, "selfsubjectaccessreviews", "authorization.k8s.io"),
    _review(SelfSubjectRulesReview, "selfsubjectrulesreviews", "authorization.k8s.io"),
)
