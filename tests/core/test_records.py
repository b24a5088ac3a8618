"""The decorator `dataclass`: its classes behave as those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from interposer.core import records

FORMS = [
    {"frozen": frozen, "slots": slots, "eq": eq} for frozen in (False, True) for slots in (False, True) for eq in (0, 1)
]


def both(**form: bool) -> list[Any]:
    """Return the same class, decorated by the standard library and by this project."""
    return [point_class(decorator, **form) for decorator in (dataclasses.dataclass, records.dataclass)]


def point_class(decorator: Any, **form: bool) -> Any:
    @decorator(**form)
    class Point:
        x: int
        y: "float | None" = None
        names: list[str] = field(default_factory=list)
        secret: int = field(default=0, compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x is negative")

    return Point


def outcome(function: Any, *arguments: Any, **named: Any) -> Any:
    """Return what a call returns, or the type and the text of what it raises."""
    try:
        return function(*arguments, **named)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1,), {}), ((1, 2.0, ["a"]), {}), ((1,), {"secret": 3}), ((), {}), ((1, 2, [], 4, 5), {}), ((1,), {"z": 1})]
    + [((-1,), {})],
)
def test_objects_are_made_shown_and_refused_alike(form, arguments, named):
    theirs, ours = (outcome(lambda kind=kind: repr(kind(*arguments, **named))) for kind in both(**form))
    assert ours == theirs


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_signature_fields_and_patterns_are_alike(form):
    theirs, ours = both(**form)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [(f.name, f.type, f.default) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.default) for f in dataclasses.fields(theirs)
    ]
    assert ours.__match_args__ == theirs.__match_args__
    assert hasattr(ours, "__slots__") is form["slots"]
    assert not (form["slots"] and hasattr(ours(1), "__dict__"))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_equality_and_hashes_are_alike(form):
    def facts(kind: Any) -> list[Any]:
        points = [kind(1, 2.0, (), secret) for secret in (0, 9)] + [kind(2, 2.0, ())]
        equal = [points[0] == other for other in (*points, (1, 2.0, ()), None)]
        return [*equal, outcome(lambda: hash(points[0]) == hash(points[1]))]

    theirs, ours = both(**form)
    assert facts(ours) == facts(theirs)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", ["x", "other"])
def test_changes_are_allowed_or_refused_alike(form, name):
    def results(kind: Any) -> list[Any]:
        point = kind(1)
        refused = [outcome(setattr, point, name, 5) is not None, outcome(delattr, point, name) is not None]
        return [refused, getattr(point, "x", None)]

    theirs, ours = both(**form)
    assert results(ours) == results(theirs)


def test_a_field_of_a_frozen_object_is_named_in_the_error():
    point = both(frozen=True)[1](1)
    with pytest.raises(FrozenInstanceError, match=r"^cannot assign to field 'x'$"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match=r"^cannot delete field 'x'$"):
        del point.x


@records.dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: tuple[int, ...] = ()


@records.dataclass(frozen=True)
class Longer(Frozen):
    z: int = 3


@records.dataclass(slots=True)
class Open:
    x: int


@pytest.mark.parametrize("record", [Frozen(1, (2,)), Longer(1, z=5), Open(4)], ids=repr)
def test_objects_are_copied_pickled_and_replaced(record):
    assert pickle.loads(pickle.dumps(record)) == record
    assert copy.copy(record) == copy.deepcopy(record) == record
    assert dataclasses.replace(record, x=7).x == 7
    assert dataclasses.asdict(record) == {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}


def test_a_class_that_defines_a_method_keeps_it():
    @records.dataclass(frozen=True)
    class Own:
        x: float

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert (Own(1) == Own(2), hash(Own(1)), repr(Own(1))) == (True, 7, "own")


@pytest.mark.parametrize("derived_frozen", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_classes_of_both_decorators_inherit_from_each_other(frozen, derived_frozen):
    def facts(base_decorator: Any, decorator: Any) -> Any:
        base = point_class(base_decorator, frozen=frozen)
        derived = outcome(lambda: decorator(frozen=derived_frozen)(type("Derived", (base,), {"__module__": __name__})))
        if not isinstance(derived, type):
            return derived
        changes = outcome(setattr, derived(1), "x", 2), outcome(setattr, derived(1), "other", 2)
        return repr(derived(1)), derived(1) == derived(1), derived(1) == base(1), changes

    decorators = dataclasses.dataclass, records.dataclass
    assert len({facts(base, derived) for base in decorators for derived in decorators}) == 1


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_parameters_of_the_decorator_are_known_as_its_own(form):
    theirs, ours = both(**form)
    assert all(
        getattr(ours.__dataclass_params__, name) == getattr(theirs.__dataclass_params__, name)
        for name in ("init", "repr", "eq", "order", "unsafe_hash", "frozen")
    )


@pytest.mark.parametrize("option", [{"init": False, "default": 0}, {"hash": False}, {"kw_only": True}], ids=str)
def test_a_field_with_an_option_that_is_not_supported_is_refused(option):
    with pytest.raises(TypeError, match=r"^the field 'x' has init, hash or kw_only; use dataclasses.dataclass$"):

        @records.dataclass
        class Limited:
            x: int = field(**option)


def test_a_field_that_is_not_equal_to_itself_is_compared_as_an_object():
    nan = float("nan")
    for names in (["x"], ["x", "y"]):
        made = type("Made", (), {"__annotations__": dict.fromkeys(names, "float"), "__module__": __name__})
        values = [nan] * len(names)
        assert records.dataclass(made)(*values) == made(*values)
