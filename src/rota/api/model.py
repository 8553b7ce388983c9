"""The declaration of kinds: a base for their types, an annotation for each field, and rules.

A field is `name: Annotated[type, doc("What it means.", …bounds…)]`. Optional fields are `T | None = None`; a static
default (one that the server stores) is a plain default. The wire name is the camelCase of the Python name. Everything
else, schemas, pruning, defaulting, field ownership, is derived from these annotations.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Union, dataclass_transform, get_args, get_origin

import msgspec
from msgspec import Meta

NAME_LENGTH_MAX = 253
TEXT_LENGTH_MAX = 1024
MESSAGE_LENGTH_MAX = 32768
VALUE_LENGTH_MAX = 65536
LIST_ITEMS_MAX = 256


class Rule(NamedTuple):
    """A CEL rule on the value of the type that declares it. A rule that names `oldSelf` holds only for updates."""

    cel: str
    message: str
    field: str = ""
    """The offending field below this value, if there is one: the error's path then ends there."""


class Wrong(NamedTuple):
    """One field that a check found wrong."""

    field: str
    """Its path below the value that was checked."""
    value: Any
    why: str


class Check(NamedTuple):
    """A check in Python of values of the type that declares it, for rules that CEL cannot express.

    Rota's own admission makes it. A cluster's API server knows CEL alone: there the kind's controller makes it, and
    says what it found in a condition.
    """

    find: Callable[[dict[str, Any]], Iterable[Wrong]]
    fields: tuple[str, ...]
    """The fields it reads. On an update it runs only if one of these has changed."""
    rules: tuple[Rule, ...] = ()
    """The same check in CEL, as far as CEL can express it, for API servers of clusters. Rota does not evaluate
    these."""


ASCII_CLASSES = "(?a)"
ANNOTATION_VALUES = 1
"""`annotationlib.Format.VALUE`, which only Python 3.14 and newer can import."""
BOUNDS = ("ge", "le", "min_length", "max_length", "pattern")


def _bounds_inward(annotation: Any) -> Any:
    """Return `Annotated[T | None, bounds]` as `Annotated[Annotated[T, bounds] | None, rest]`, for msgspec."""
    if get_origin(annotation) is not Annotated:
        return annotation
    inner, (meta, *others) = annotation.__origin__, annotation.__metadata__
    members = [t for t in get_args(inner) if t is not NoneType]
    bounds = {b: getattr(meta, b) for b in BOUNDS if getattr(meta, b, None) is not None}
    if len(members) != 1 or len(get_args(inner)) != 2 or get_origin(inner) not in (Union, UnionType) or not bounds:
        return annotation
    plain = Meta(description=meta.description, extra_json_schema=meta.extra_json_schema, extra=meta.extra)
    bounded: Any = Annotated[members[0], Meta(**bounds)]
    return Annotated[(bounded | None, plain, *others)]


def _take_annotations(namespace: dict[str, Any]) -> dict[str, Any]:
    """Remove the annotations from a class body and return them, evaluated.

    Since Python 3.14 a class body holds a function that makes them instead of the annotations themselves.
    """
    make: Callable[[int], dict[str, Any]] | None = namespace.pop("__annotate_func__", None)
    annotations: dict[str, Any] = namespace.pop("__annotations__", {})
    return make(ANNOTATION_VALUES) if make else annotations


class ModelMeta(msgspec.StructMeta):
    """Make fields keyword-only, and apply the bounds of an optional field to its value.

    The annotations must be real types when the class is made: modules of kinds do without
    `from __future__ import annotations` and without forward references.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> "ModelMeta":
        config.setdefault("kw_only", True)
        annotations = _take_annotations(namespace)
        namespace["__annotations__"] = {field: _bounds_inward(one) for field, one in annotations.items()}
        return super().__new__(cls, name, bases, namespace, **config)


def exact(pattern: str) -> str:
    """Return a pattern for `re` with the meaning that it has to an API server: `$` is the end, classes are ASCII."""
    assert "$" not in pattern[:-1], f"{pattern}: the end of a text is the end of its pattern"
    return ASCII_CLASSES + (pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern)


def as_written(exact_pattern: str) -> str:
    """Return the pattern that `exact` was called with."""
    return exact_pattern.removeprefix(ASCII_CLASSES).replace(r"\Z", "$")


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=ModelMeta, omit_defaults=True, rename="camel"):
    """Base of every type on the wire."""

    rules: ClassVar[tuple[Rule, ...]] = ()
    checks: ClassVar[tuple[Check, ...]] = ()


def doc(
    text: str,
    *,
    ge: int | None = None,
    le: int | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    keys: tuple[str, ...] = (),
    unique: bool = False,
    atomic: bool = False,
    refers: str = "",
    needs: Literal["", "existence"] = "",
) -> Meta:
    """One field's documentation, bounds and structure.

    `keys` makes a list a map keyed by these fields, `unique` makes it a set, `atomic` makes a map owned as one value.
    `refers` names the kind that this field's value (a reference, a name, or a list of names) points to. What it points
    to must be ready; with `needs="existence"` here, or on a field around it, it is enough that it exists.
    """
    extension: dict[str, Any] = {}
    if keys:
        extension = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    elif unique:
        extension = {"x-kubernetes-list-type": "set"}
    elif atomic:
        extension = {"x-kubernetes-map-type": "atomic"}
    bounds: dict[str, Any] = {
        "ge": ge,
        "le": le,
        "min_length": min_length,
        "max_length": max_length,
        "pattern": exact(pattern) if pattern else None,
    }
    return Meta(
        description=text,
        extra_json_schema=extension or None,
        extra={"refers": refers, "needs": needs} if refers or needs else None,
        **{name: bound for name, bound in bounds.items() if bound is not None},
    )


CEL_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


def _in_cel(field: str) -> str:
    """A field's name as rules must spell it."""
    return f"__{field}__" if field in CEL_RESERVED else field


def immutable(*fields: str) -> tuple[Rule, ...]:
    """Rules that forbid setting, changing and removing these fields of the declaring type once an object exists."""
    return tuple(
        Rule(
            f"has(self.{f}) == has(oldSelf.{f}) && (!has(self.{f}) || self.{f} == oldSelf.{f})",
            f"{name} is immutable",
        )
        for name, f in ((name, _in_cel(name)) for name in fields)
    )


def exactly_one(*fields: str) -> Rule:
    """A rule that exactly one of these fields is set."""
    terms = ", ".join(f"has(self.{_in_cel(name)})" for name in fields)
    return Rule(f"[{terms}].exists_one(set, set)", f"exactly one of {', '.join(fields)} must be set")


TIME_PATTERN = (
    "^(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}"
    "([.][0-9]{1,9})?([Zz]|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
"""A pattern of times that Rota can read too: the API server of a cluster accepts more."""
_DIGITS_OF_UNIT = {
    "[num]?": "[0-9]{1,18}",
    "Ki|k": "[0-9]{1,15}",
    "Mi?": "[0-9]{1,12}",
    "Gi?": "[0-9]{1,9}",
    "Ti?": "[0-9]{1,6}",
    "Pi?": "[0-9]{1,3}",
    "Ei?": "[0-7]",
    "[eE][-+]?[0-9]": "[0-9]{1,9}",
    "[eE][+]?1[0-7]": "[0-9]",
}
_AMOUNTS = "|".join(
    rf"({whole}([.][0-9]{{0,18}})?|[.][0-9]{{1,18}})({unit})" for unit, whole in _DIGITS_OF_UNIT.items()
)
QUANTITY_PATTERN = rf"^[+]?({_AMOUNTS})$"
"""Kubernetes' quantities below 2^63, which is the bound of sums, files and system calls."""
QUANTITY_MAX = 10**18
"""Bound on a quantity that is written as a number."""
TOTAL_PATTERN = "^[0-9]{1,62}[nm]?$"

LABEL_LENGTH_MAX = 63
LABEL_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""A DNS label, for names of parts of an object."""
NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""A DNS subdomain, for names of objects."""
KEY_PATTERN = "^[-._a-zA-Z0-9]+$"
"""A key of a Secret or ConfigMap."""
LINE_PATTERN = r"^[^\x00-\x1f\x7f]*$"
NO_NUL_PATTERN = r"^[^\x00]*$"

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX, pattern=exact(NAME_PATTERN))]
"""The name of an object."""
Label = Annotated[str, Meta(min_length=1, max_length=LABEL_LENGTH_MAX, pattern=exact(LABEL_PATTERN))]
"""The name of a part of an object. It may become part of a path, an argument, a label or the name of a socket."""
Line = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX, pattern=exact(LINE_PATTERN))]
"""A short text of one line, without control characters."""
Argument = Annotated[str, Meta(max_length=VALUE_LENGTH_MAX, pattern=exact(NO_NUL_PATTERN))]
"""An argument of a program, which ends at a NUL."""
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
"""A short text: a path, an argument, a label's value."""
Value = Annotated[str, Meta(max_length=VALUE_LENGTH_MAX)]
"""A long text: a prompt, a file's content, an environment value."""
Quantity = (
    Annotated[int, Meta(ge=0, le=QUANTITY_MAX)] | Annotated[str, Meta(max_length=64, pattern=exact(QUANTITY_PATTERN))]
)
"""A Kubernetes quantity that is not negative, and less than 2^63: 2, 500m, 1Gi."""
Total = Annotated[str, Meta(max_length=64, pattern=exact(TOTAL_PATTERN))]
"""A sum of quantities, as it is counted: 2, 1500m, 1073741824."""
CityCode = Annotated[str, Meta(min_length=1, max_length=63, pattern=exact("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
"""A city's short name."""
Time = Annotated[datetime, Meta(tz=True)]
"""An RFC 3339 time."""
JSONObject = dict[str, Any]
"""Free-form JSON, an object at its top."""


class Ref(Model):
    """A reference to another object of the same namespace, or of the cluster, by name."""

    name: Annotated[Name, doc("Name of the object referred to.")]


class KeyRef(Model):
    """A reference to one key of a Secret or ConfigMap."""

    name: Annotated[Name, doc("Name of the object that has the key.")]
    key: Annotated[str, doc("Key of the value.", min_length=1, max_length=NAME_LENGTH_MAX, pattern=KEY_PATTERN)]
