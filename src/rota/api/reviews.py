"""Kubernetes' questions about oneself: who am I, may I do this, what may I do. Answered, and never stored."""

from typing import Annotated

from rota.api.kind import Kind
from rota.api.meta import Object
from rota.api.model import JSONObject, Model, Text, doc

LIST_MAX = 1024


class UserInfo(Model):
    """Who somebody is."""

    username: Annotated[Text | None, doc("The name of the token.")] = None
    uid: Annotated[Text | None, doc("The id of the token.")] = None
    groups: Annotated[list[Text], doc("The groups: what the token's scope is.", max_length=LIST_MAX)] = []
    extra: Annotated[
        dict[str, Annotated[list[Text], doc("", max_length=LIST_MAX)]],
        doc("The scope of the token, and the namespace it is for.", max_length=LIST_MAX),
    ] = {}


class SelfSubjectReviewStatus(Model):
    """The answer to who one is."""

    user_info: Annotated[UserInfo | None, doc("Who asks.")] = None


class SelfSubjectReview(Object):
    """Who am I?"""

    status: Annotated[SelfSubjectReviewStatus | None, doc("The answer.")] = None


class ResourceAttributes(Model):
    """A request for objects. An empty or absent name, and `*` for the others, mean all."""

    namespace: Annotated[Text | None, doc("The namespace; empty for all, and for cluster kinds.")] = None
    verb: Annotated[Text | None, doc("The verb, as `get` or `create`.")] = None
    group: Annotated[Text | None, doc("The API group.")] = None
    version: Annotated[Text | None, doc("The version, which does not matter.")] = None
    resource: Annotated[Text | None, doc("The resource, as `workerpools`.")] = None
    subresource: Annotated[Text | None, doc("The subresource, as `status`.")] = None
    name: Annotated[Text | None, doc("The name of the object.")] = None
    field_selector: Annotated[JSONObject | None, doc("Not looked at: no right depends on it.")] = None
    label_selector: Annotated[JSONObject | None, doc("Not looked at: no right depends on it.")] = None


class NonResourceAttributes(Model):
    """A request for something that is no object."""

    path: Annotated[Text | None, doc("The path of the URL.")] = None
    verb: Annotated[Text | None, doc("The method, in lower case.")] = None


class SelfSubjectAccessReviewSpec(Model):
    """What one would like to do: exactly one of the two."""

    resource_attributes: Annotated[ResourceAttributes | None, doc("A request for objects.")] = None
    non_resource_attributes: Annotated[NonResourceAttributes | None, doc("A request for something else.")] = None


class SelfSubjectAccessReviewStatus(Model):
    """Whether one may."""

    allowed: Annotated[bool | None, doc("Whether it is allowed.")] = None
    denied: Annotated[bool | None, doc("Whether it is denied whatever else might allow it.")] = None
    reason: Annotated[Text | None, doc("Why.")] = None
    evaluation_error: Annotated[Text | None, doc("What prevented an answer.")] = None


class SelfSubjectAccessReview(Object):
    """May I do this?"""

    spec: Annotated[SelfSubjectAccessReviewSpec, doc("What one would like to do.")]
    status: Annotated[SelfSubjectAccessReviewStatus | None, doc("The answer.")] = None


class SelfSubjectRulesReviewSpec(Model):
    """Where."""

    namespace: Annotated[Text | None, doc("The namespace.")] = None


class SelfSubjectRulesReviewStatus(Model):
    """All that one may do there."""

    resource_rules: Annotated[list[JSONObject], doc("Rules on objects.", max_length=LIST_MAX)] = []
    non_resource_rules: Annotated[list[JSONObject], doc("Rules on other paths.", max_length=LIST_MAX)] = []
    incomplete: Annotated[bool | None, doc("Whether there may be more.")] = None
    evaluation_error: Annotated[Text | None, doc("What prevented a complete answer.")] = None


class SelfSubjectRulesReview(Object):
    """What may I do in a namespace?"""

    spec: Annotated[SelfSubjectRulesReviewSpec, doc("Where.")]
    status: Annotated[SelfSubjectRulesReviewStatus | None, doc("The answer.")] = None


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
