"""What is generated from declarations is up to date, and the generator does what it says."""

import inspect

import pytest

import interposer.ops
from interposer.core.schema import Op, attribute, op, operand, registered_ops, result
from interposer.core.types import ANY_TYPE, FLOATS, DataType
from interposer.ir import signatures
from interposer.ir.network import Network
from tools import builders, declarations, generate, pages


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


@pytest.fixture(scope="module")
def files():
    """Return the generated files by their paths."""
    return generate.generated()


def test_the_generated_files_are_fresh(files):
    assert generate.stale_files(files) == [], "run: python tools/generate.py"


def test_operators_are_declared_well():
    assert generate.complaints() == []


@pytest.mark.parametrize(("name", "words"), [
    ("Convolution2d", "convolution2d"), ("DepthwiseConvolution2d", "depthwise_convolution2d"),
    ("SpaceToBatchNd", "space_to_batch_nd"), ("L2Normalization", "l2_normalization"),
    ("ConvertFp16ToFp32", "convert_fp16_to_fp32"), ("ReverseV2", "reverse_v2"), ("LSTMCell", "lstm_cell"),
])  # fmt: skip
def test_a_builder_is_named_after_its_operator(name, words):
    assert signatures.builder_name(type(name, (Op,), {})) == f"add_{words}_layer"


def test_there_is_a_builder_for_every_operator():
    for kind in declarations.shipped():
        method = getattr(Network, signatures.builder_name(kind))
        if kind.op_name() not in signatures.WITHOUT_BUILDER:
            assert set(inspect.signature(method).parameters) >= {operand.name for operand in kind.operands}


def test_a_builder_has_operands_by_position_and_attributes_by_name():
    assert (
        "\n".join(builders._method(Blend))
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
        """Mix images."""'''
    )
    assert signatures.builder_arguments(Blend) == [
        "Blend(count=count, text=text, limit=limit)", "first", "*others", "name=name", "outputs=outputs",
    ]  # fmt: skip


def test_a_long_first_line_is_cut_between_its_parts():
    class Long(Blend):
        pass

    Long.__doc__ = f"Mix {'many ' * 15}images (of any kind), in one go; slowly."
    assert builders._summary(Long) == f"Mix {'many ' * 15}images (of any kind)."


def test_a_page_tells_everything_that_is_declared():
    assert (
        "\n".join(pages._operator(Blend))
        == r"""## Blend

Mix images. More of it.

Added by `Network.add_blend_layer`.

| Operand | Rank | Types |  | Meaning |
| --- | --- | --- | --- | --- |
| `first` | 2 to 4 | float32 |  | The one \| the other. |
| `others` | any |  | any number |  |

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
    assert list(generate._problems(Blend)) == [
        "its docstring has no Source section",
        "its docstring has no Example section",
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
    assert "stale: src/interposer/ir/builders.pyi\n" in capsys.readouterr().out
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
    assert pages.environment_variables(source) == [("INTERPOSER_A", "what A means.")]


def test_a_table_in_a_docstring_stands_without_its_rulers():
    assert pages.prose("A.\n\n== ==\na  b\n== ==\n\nB.") == "A.\n\n```text\na  b\n```\n\nB."


def test_a_literal_block_of_a_docstring_is_one_in_markdown():
    assert pages.prose("With x::\n\n    y = x") == "With x:\n\n    y = x"


def test_an_example_stands_below_the_description_and_ends_with_an_empty_line():
    page = "\n".join(pages._operator(interposer.ops.Rank)).splitlines()
    [start] = [number for number, line in enumerate(page) if line == "```python continued"]
    assert page[start + 1 : start + 5] == [">>> compute(Rank(), [[1, 2, 3], [4, 5, 6]]).tolist()", "2", "", "```"]
    assert page.index("The number of axes of a tensor, as a scalar.") < start < page.index("**Shapes**")


def test_a_page_begins_with_the_imports_of_its_examples():
    text = ">>> found = [compute(Softmax(), np.log([one])) for one in range(3)]\n>>> found, Quantization(0.5)"
    assert list(pages._example_imports(text)) == [
        ">>> import numpy as np",
        ">>> from interposer import Quantization, compute",
        ">>> from interposer.ops import Softmax",
    ]
    assert list(pages._example_imports("")) == []


def test_an_example_may_use_only_what_is_exported():
    with pytest.raises(
        SystemExit, match="an example uses softmax, which neither interposer nor interposer.ops exports"
    ):
        list(pages._example_imports(">>> softmax([1.0])"))


def test_data_types_are_those_of_the_samples_that_the_reference_takes():
    assert list(pages._data_types(interposer.ops.Shape)) == [
        "**Data types that CpuRef takes**",
        "",
        "|  | Types | Quantized types |",
        "| --- | --- | --- |",
        "| `input` | any | int8 to int64, uint8 to uint64, int4, uint4, int2, uint2 |",
        "| `output` | int32, int64 |  |",
        "",
    ]


def test_of_many_operands_most_are_the_others():
    assert [names for names, _, _ in pages._type_rows(interposer.ops.QuantizedLstm)] == [
        "`cell_state_in`, `cell_state_out`",
        "`input_gate_bias`, `forget_gate_bias`, `cell_bias`, `output_gate_bias`",
        "the others",
    ]
    assert [names for names, _, _ in pages._type_rows(interposer.ops.Floor)] == ["all"]


def test_an_optional_operand_has_the_types_of_all_samples_with_or_without_it():
    types = pages._types_of_samples(interposer.ops.Lstm)
    assert (DataType.BFLOAT16, False) in types["input_layer_norm_weights"]
    assert (DataType.BOOL, False) not in types["input_layer_norm_weights"]


def test_indices_have_the_types_that_the_operator_allows():
    assert pages._types_of_samples(interposer.ops.Attention)["valid_lengths"] == {
        (DataType.INT32, False),
        (DataType.INT64, False),
    }


@pytest.mark.parametrize(("types", "text"), [
    (ANY_TYPE, "any"),
    (DataType, "any, sequence, optional"),
    ([DataType.INT16, DataType.INT8, DataType.INT64, DataType.INT32, DataType.BOOL], "bool, int8 to int64"),
    ([DataType.INT8, DataType.INT64, DataType.UINT8], "int8, int64, uint8"),
    (FLOATS, "float16 to float64, bfloat16, float8"),
    ([], ""),
], ids=["all", "also what is no tensor", "bool and integers", "some integers", "floats", "none"])  # fmt: skip
def test_a_set_of_types_is_told_in_words(types, text):
    assert pages.types_text(types) == text


def test_enumerations_have_a_place_on_the_page_of_their_family(files):
    page = files["docs/reference/operators/rearrange.md"]
    assert "| [`PaddingMode`](#paddingmode) |" in page
    assert "| `EDGE` | The nearest element of the edge. |" in page.partition("## PaddingMode")[2]
    assert "[`PoolingAlgorithm`](pooling.md#poolingalgorithm)" in files["docs/reference/operators/pooling3d.md"]


def test_the_pages_lead_to_every_operator(files):
    index = files["docs/reference/operators/README.md"]
    for name in interposer.ops.__dict__:
        match = getattr(interposer.ops, name)
        if isinstance(match, type) and match in registered_ops().values():
            assert f"- [{name}](" in index
