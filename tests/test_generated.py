"""What is generated from declarations is up to date, and the generator does what it says."""

import importlib.util
import inspect
from pathlib import Path

import pytest

import interposer.ops
from interposer.ir.network import Network
from interposer.schema import Op, attribute, op, operand, result
from interposer.types import DataType

ROOT = Path(__file__).resolve().parent.parent


def loaded_generator():
    spec = importlib.util.spec_from_file_location("interposer_generate", ROOT / "tools/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = loaded_generator()


@op(register=False)
class Blend(Op):
    """Mix images. More of it.

    Shapes:
        first: (N, ...)
    """

    first = operand(rank=(2, 4), dtypes={DataType.FLOAT32}, doc="The one | the other.")
    others = operand(variadic=True, optional=True)
    mixed = result(like="first")

    count: int = attribute(ge=0, le=8)
    text: str = attribute(default="a", doc="A text.")
    limit: float | None = float("inf")
    only: str = attribute(default="b", choices=("b",))


def test_the_generated_files_are_fresh():
    assert generate.stale_files() == [], "run: python tools/generate.py"


def test_operators_are_declared_well():
    assert generate.complaints() == []


@pytest.mark.parametrize(("name", "snake"), [
    ("Convolution2d", "convolution2d"), ("DepthwiseConvolution2d", "depthwise_convolution2d"),
    ("SpaceToBatchNd", "space_to_batch_nd"), ("L2Normalization", "l2_normalization"),
    ("ConvertFp16ToFp32", "convert_fp16_to_fp32"), ("ReverseV2", "reverse_v2"), ("LSTMCell", "lstm_cell"),
])  # fmt: skip
def test_a_builder_is_named_after_its_operator(name, snake):
    assert generate.snake_case(name) == snake


def test_there_is_a_builder_for_every_operator():
    for found in generate.shipped():
        method = getattr(Network, f"add_{generate.snake_case(found.op_name())}_layer")
        if found.op_name() not in generate.BY_HAND:
            assert set(inspect.signature(method).parameters) >= {operand.name for operand in found.operands}


def test_a_builder_has_operands_by_position_and_attributes_by_name():
    assert (
        "\n".join(generate._method(Blend))
        == '''\
    def add_blend_layer(
        self,
        first: Value | Layer | None,
        *others: Value | Layer | None,
        count: int,
        text: str = "a",
        limit: float | None = float("inf"),
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
    ) -> Layer:
        """Mix images."""
        op = Blend(count=count, text=text, limit=limit)
        return self.add_layer(op, first, *others, name=name, outputs=outputs)'''
    )


def test_a_long_first_line_is_cut_between_its_parts():
    class Long(Blend):
        pass

    Long.__doc__ = f"Mix {'many ' * 15}images (of any kind), in one go; slowly."
    assert generate._summary(Long) == f"Mix {'many ' * 15}images (of any kind)."


def test_a_page_tells_everything_that_is_declared():
    assert (
        "\n".join(generate._operator(Blend))
        == r"""## Blend

Mix images. More of it.

Added by `Network.add_blend_layer`.

| Operand | Rank | Types |  | Meaning |
| --- | --- | --- | --- | --- |
| `first` | 2 to 4 | float32 |  | The one \| the other. |
| `others` | any | any | any number |  |

| Result | Rank | Types |
| --- | --- | --- |
| `mixed` | any | that of `first` |

| Attribute | Type | Default | Allowed | Meaning |
| --- | --- | --- | --- | --- |
| `count` | `int` | required | >= 0, <= 8 |  |
| `text` | `str` | `'a'` |  | A text. |
| `limit` | `float \| None` | `inf` |  |  |
| `only` | `str` | `'b'` | `'b'` |  |

**Shapes**

```text
first: (N, ...)
```

There is no reference kernel yet.

"""
    )


def test_what_is_declared_badly_is_listed():
    assert list(generate._faults(Blend)) == [
        "its docstring has no Source section",
        "the attribute 'count' has no doc",
        "the attribute 'limit' has no doc",
        "it has no reference kernel",
    ]


def test_the_command_names_stale_files_and_fails_only_when_it_checks(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    stray = tmp_path / "docs/reference/operators/stray.md"
    stray.parent.mkdir(parents=True)
    stray.write_text("gone")
    assert generate.main(["--check"]) == 1
    assert "stale: src/interposer/ir/builders.py\n" in capsys.readouterr().out
    assert stray.exists()
    assert generate.main([]) == 0
    assert "written: docs/reference/operators/stray.md\n" in capsys.readouterr().out
    assert not stray.exists()
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_environment_variables_are_found_with_their_meaning():
    source = '''
A: Final = "INTERPOSER_A"
"""Environment variable: what A means."""
B: Final = "B"
"""Something else."""
'''
    assert generate.environment_variables(source) == [("INTERPOSER_A", "what A means.")]


def test_a_table_in_a_docstring_stands_as_it_is():
    assert generate.prose("A.\n\n== ==\na  b\n== ==\n\nB.") == "A.\n\n```text\n== ==\na  b\n== ==\n```\n\nB."


def test_the_pages_lead_to_every_operator():
    index = generate.generated()["docs/reference/operators/README.md"]
    for name in interposer.ops.__dict__:
        found = getattr(interposer.ops, name)
        if isinstance(found, type) and issubclass(found, Op) and found is not Op:
            assert f"- [{name}](" in index
