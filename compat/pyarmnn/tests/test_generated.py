"""Classes own or do not own their objects, and have destructors, as the classes that SWIG generates for Arm NN."""

import inspect

import pytest
from pyarmnn._generated import pyarmnn as generated

ABSTRACT = {"IBackend", "IConnectableLayer", "IDeviceSpec", "IInputSlot", "IOutputSlot", "IProfiler"}
CLASSES = dict(inspect.getmembers(generated, inspect.isclass))


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - ABSTRACT))
def test_a_concrete_class_has_a_destructor_of_its_name(name):
    assert CLASSES[name].__swig_destroy__.__name__ == f"delete_{name}"
    assert CLASSES[name].thisown


@pytest.mark.parametrize("name", sorted(CLASSES.keys() & ABSTRACT))
def test_an_abstract_class_has_no_destructor_and_no_constructor(name):
    assert not hasattr(CLASSES[name], "__swig_destroy__")
    with pytest.raises(AttributeError, match="^No constructor defined - class is abstract$"):
        CLASSES[name]()


def test_ownership_can_be_set_and_read():
    shape = generated.TensorShape((1,))
    assert shape.thisown is True
    shape.thisown = 0
    assert shape.thisown is False


def test_a_destroyed_object_is_not_owned():
    shape = generated.TensorShape((1,))
    type(shape).__swig_destroy__(shape)
    assert shape.thisown is False


def test_the_representation_names_the_class_and_the_type_of_arm_nn():
    prefix = "<pyarmnn._generated.pyarmnn.TensorShape; proxy of <Swig Object of type 'armnn::TensorShape *' at 0x"
    assert repr(generated.TensorShape((1, 2))).startswith(prefix)
