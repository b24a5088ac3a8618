"""The registry of file formats: what is found, what is refused and why, and how a file's format is chosen."""

import errno
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interposer.core.errors import FileReadError, InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.file_formats import Certainty, Content, Format, Formats, Reading, process_formats
from interposer.ir.network import Network
from interposer.session.source import read_network


class Greek(Format):
    title = "Greek"
    files = "Greek files"
    suffixes = (".greek",)

    def recognizes(self, content: Content) -> Certainty:
        return Certainty.SIGNATURE if content.head.startswith(b"alpha") else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network:
        return Network("greek")


class Roman(Greek):
    title = "Roman"
    suffixes = (".roman",)
    written_suffix = ".roman"

    def recognizes(self, content: Content) -> Certainty:
        return Certainty.LIKELY if content.head.startswith(b"a") else Certainty.NO

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        return "Roman"


class Latin(Greek):
    title = "Latin"

    def operators(self) -> list[str]:
        return ["Adde"]


class Silent(Format):
    title = "Silent"

    def recognizes(self, content: Content) -> Certainty:
        return Certainty.NO


class Broken(Greek):
    def recognizes(self, content: Content) -> Certainty:
        raise ZeroDivisionError("no digits")

    def explains(self, content: Content) -> str | None:
        raise ZeroDivisionError("no words")

    def accepts(self, source: object) -> bool:
        raise ZeroDivisionError("no objects")

    def operators(self) -> list[str]:
        raise ZeroDivisionError("no operators")


class Spotted(Greek):
    suffixes = ".greek"  # type: ignore[assignment]


class Capital(Roman):
    written_suffix = "ROMAN"


class Elsewhere(Greek):
    def recognizes(self, content: Content) -> Certainty:
        raise FileNotFoundError("no file beside it")


class Nameless(Format):
    def recognizes(self, content: Content) -> Certainty:
        return Certainty.SIGNATURE if content.head.startswith(b"nameless") else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Any:
        return {"layers": 0}[bytes(source)[9:].decode()]


def absent() -> type[Format]:
    raise ModuleNotFoundError("No module named 'papyrus'")


@pytest.fixture
def formats() -> Formats:
    formats = Formats()
    formats.register("greek", lambda: Greek, "entry point of alexandria")
    formats.register("roman", lambda: Roman, "entry point of rome")
    return formats


@pytest.mark.parametrize(
    ("name", "load", "reason"),
    [
        ("papyrus", absent, "ModuleNotFoundError: No module named 'papyrus'"),
        ("silent", lambda: Silent, "it has neither read nor write"),
        ("plain", lambda: dict, "it is <class 'dict'>; expected a class derived from interposer.file_formats.Format"),
        (
            "spotted",
            lambda: Spotted,
            "its suffixes are '.greek'; expected a tuple of lower-case suffixes, such as ('.rows',)",
        ),
        ("capital", lambda: Capital, "its written_suffix is 'ROMAN'; expected a lower-case suffix, such as '.rows'"),
        ("greek", lambda: Greek, "the name is taken (entry point of alexandria)"),
        ("two words", lambda: Greek, "the name of a format must be a word such as my_format, not 'two words'"),
    ],
)
def test_a_format_that_cannot_be_used_is_a_record_with_its_reason(formats, name, load, reason):
    formats.register(name, load, "entry point of elsewhere")
    assert (name, False, "entry point of elsewhere", reason) in formats.records()
    assert formats.names == ("greek", "roman")


def test_a_format_that_cannot_be_imported_says_so_where_it_is_named(formats):
    formats.register("papyrus", absent, "entry point of elsewhere")
    with pytest.raises(InvalidArgumentError) as error:
        formats.named("papyrus")
    assert str(error.value) == "the format 'papyrus' cannot be used: ModuleNotFoundError: No module named 'papyrus'"


def test_a_format_is_named_in_any_case(formats):
    assert formats.named("GREEK") is formats.named("greek")


def test_an_unknown_name_gets_the_nearest_ones(formats):
    with pytest.raises(InvalidArgumentError) as error:
        formats.named("greck")
    assert str(error.value) == "unknown format 'greck'; did you mean 'greek'? (known: greek, roman)"


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.bin", b"alpha", "greek"),
        ("a.bin", b"ave", "roman"),
        ("a.greek", b"ave", "roman"),
        ("a.greek", b"?", "greek"),
        ("a.roman", b"?", "roman"),
    ],
)
def test_the_content_of_a_file_shows_its_format_before_the_suffix_does(formats, name, content, format, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(content)
    assert formats.of(path) == format


def test_a_file_of_no_format_is_refused_with_the_formats_that_are_known(formats):
    with pytest.raises(ParseError) as error:
        formats.of(b"?")
    assert str(error.value) == (
        "this is no model of a known format (greek, roman): its content starts with b'?'; name the format if it is one"
    )


def test_a_format_that_fails_to_recognize_a_file_is_logged_and_passed_over(formats, caplog):
    formats.register("broken", lambda: Broken, "entry point of elsewhere")
    with caplog.at_level(logging.WARNING, "interposer.formats"):
        assert formats.of(b"alpha") == "greek"
    assert "format 'broken' failed to recognize a file: ZeroDivisionError: no digits" in caplog.messages


@pytest.mark.parametrize(
    ("find", "message"),
    [
        (lambda formats: formats.of(b"ave"), "no words"),
        (lambda formats: formats.accepting({}), "no objects"),
    ],
)
def test_a_format_that_fails_to_explain_or_accept_is_logged_and_passed_over(formats, find, message, caplog):
    expected = find(formats)
    formats.register("broken", lambda: Broken, "entry point of elsewhere")
    with caplog.at_level(logging.WARNING, "interposer.formats"):
        assert find(formats) == expected
    assert f"format 'broken' failed to recognize a file: ZeroDivisionError: {message}" in caplog.messages


def test_an_error_of_the_system_in_a_format_does_not_stop_the_others(formats, caplog):
    formats.register("elsewhere", lambda: Elsewhere, "entry point of elsewhere")
    with caplog.at_level(logging.WARNING, "interposer.formats"):
        assert formats.of(b"alpha") == "greek"
    assert "format 'elsewhere' failed to recognize a file: FileNotFoundError: no file beside it" in caplog.messages


def test_a_lack_of_open_files_is_no_failure_of_a_format(formats, caplog):
    class Crowded(Greek):
        def recognizes(self, content: Content) -> Certainty:
            raise OSError(errno.EMFILE, "Too many open files", "letters.greek")

    formats.register("crowded", lambda: Crowded, "entry point of elsewhere")
    with pytest.raises(FileReadError) as caught:
        formats.of(b"alpha")
    assert str(caught.value) == "letters.greek: the file cannot be read: Too many open files"
    assert not caplog.messages


def test_the_format_that_converts_an_operator_is_found_although_another_fails(formats, caplog):
    formats.register("broken", lambda: Broken, "entry point of elsewhere")
    formats.register("latin", lambda: Latin, "entry point of elsewhere")
    with caplog.at_level(logging.WARNING, "interposer.formats"):
        assert (formats.converting("ADDE"), formats.converting("subtrahe")) == ("Latin", "")
    assert "format 'broken' failed to list operators: ZeroDivisionError: no operators" in caplog.messages


def test_a_file_that_cannot_be_read_is_no_failure_of_a_format(formats, tmp_path, caplog):
    path = str(tmp_path / "absent.greek")
    with pytest.raises(ParseError) as error:
        formats.of(path)
    assert str(error.value) == f"{path}: the file cannot be read: No such file or directory"
    assert not caplog.messages


def test_a_format_without_texts_for_messages_is_called_after_its_class():
    assert (Nameless.title, Nameless.files) == ("Nameless", "Nameless files")
    assert (Greek.title, Silent.files) == ("Greek", "Silent files")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nameless layers", "the format 'nameless' gave int; expected a Network or a Template"),
        (b"nameless nodes", "the format 'nameless' failed to read it: KeyError: 'nodes'"),
    ],
)
def test_a_format_that_fails_to_read_a_file_is_named(formats, content, message, monkeypatch):
    formats.register("nameless", lambda: Nameless, "this test")
    monkeypatch.setattr("interposer.session.source.process_formats", lambda: formats)
    with pytest.raises(ParseError) as error:
        read_network(content)
    assert str(error.value) == message


class Refusing(Format):
    def recognizes(self, content: Content) -> Certainty:
        return Certainty.SIGNATURE if content.head.startswith(b"refused") else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Any:
        raise UnsupportedOperatorError({"Spin": 1})


def test_what_a_format_refuses_is_told_with_the_path_of_the_file(formats, monkeypatch, tmp_path):
    formats.register("refusing", lambda: Refusing, "this test")
    monkeypatch.setattr("interposer.session.source.process_formats", lambda: formats)
    (tmp_path / "net").write_bytes(b"refused")
    with pytest.raises(UnsupportedOperatorError) as error:
        read_network(tmp_path / "net")
    assert str(error.value).splitlines()[0] == f"{tmp_path / 'net'}: operators that are not supported:"


def test_a_format_that_is_registered_late_is_found(formats):
    assert formats.names == ("greek", "roman")
    formats.register("late", lambda: Greek, "entry point of elsewhere")
    assert formats.names == ("greek", "roman", "late")


def test_only_formats_that_write_are_found_by_the_suffix_of_an_output(formats):
    assert {suffix: format.title for suffix, format in formats.writers().items()} == {".roman": "Roman"}


def test_the_formats_of_this_package_are_ordinary_entry_points():
    records = process_formats().records()
    assert {record.source for record in records if record.name in {"onnx", "text", "saved", "torch"}} == {
        "entry point of interposer-nn"
    }
    assert all(record.available for record in records)


def test_a_lookup_imports_no_front_end():
    code = "import sys; from interposer.file_formats import process_formats; process_formats().of(b'graph {}')"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    front_ends = [
        f"interposer.frontends.{name}" for name in ("onnx", "tflite", "tensorflow", "caffe", "nnapi", "armnn")
    ]
    imported = set(done.stdout.split())
    assert imported.isdisjoint([*front_ends, "interposer.frontends.torch", "interposer.session.torch.compiling"])
