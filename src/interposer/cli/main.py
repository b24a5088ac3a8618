"""``interposer``: the choice of the command, its settings, and the mapping of errors to messages and exit statuses."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from interposer._version import __version__
from interposer.cli import interrupts
from interposer.cli.option_names import in_options
from interposer.cli.parsing import LEVEL_OPTION, Parser, add_global_arguments, command_parser, parsed
from interposer.cli.streams import discard_output, log_messages, prepare_streams, print_error, printable
from interposer.core.config import check_settings, unknown_variables
from interposer.core.errors import (
    InterposerError,
    InvalidArgumentError,
    LimitExceededError,
    UnsupportedLayerError,
    did_you_mean,
)
from interposer.core.files import download_hint, missing_hint, similar_file
from interposer.core.pauses import collector_paused

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = {
    "run": "run a network on an image or on arrays, and show what it gives",
    "explain": "show which backend gets which layer, and why the others do not",
    "trace": "run a network, and write what happened as a timeline for Perfetto or Chrome",
    "profile": "collect the profiles that programs send in Arm NN's protocol, or read one",
    "bench": "measure a network on all backends, and compare their times",
    "compare": "run two backends layer by layer, and show where they differ",
    "serve": "answer requests over HTTP and gRPC, with the Open Inference Protocol",
    "plan": "measure which backend should run which layer, and write a plan file",
    "compile": "optimize a network, and save it with what the backends compiled",
    "saved": "show what a saved network contains, and verify it",
    "convert": "write a network in another format",
    "quantize": "quantize a float network with calibration data",
    "backends": "list the backends, and why some are absent",
    "cache": "list the cached files, say which are stale and why, or delete them",
    "ops": "list the operators, or those that a backend has kernels for",
    "check-backend": "check that a backend conforms to the plug-in interface",
    "new-backend": "create a project for a new backend, which builds and conforms",
    "completion": "print a script that lets bash, zsh or fish complete commands and options",
}
"""The commands with their descriptions.

The module of the same name in `cli.arguments` has `configure`, and that in `cli` has `execute`, which returns the exit
status if the answer of the command is "no", and None or 0 otherwise.
"""

EXAMPLES: Final = {
    "run": "run net.tflite --input photo.png --labels labels.txt",
    "explain": "explain net.onnx --html net.html",
    "trace": "trace net.onnx --random -o trace.html",
    "profile": "profile --listen --timeline",
    "bench": "bench net.onnx --random",
    "compare": "compare net.onnx --random --backends CpuRef,CpuAcc",
    "serve": "serve net.onnx --port 8080",
    "plan": "plan net.onnx -o plan.json",
    "compile": "compile net.onnx -o net.ipn",
    "saved": "saved net.ipn --check",
    "convert": "convert net.onnx net.tflite",
    "quantize": "quantize net.onnx --data photos/ -o int8.onnx",
    "backends": "backends",
    "cache": "cache why net.onnx",
    "ops": "ops Softmax",
    "check-backend": "check-backend CpuAcc",
    "new-backend": "new-backend Npu --lang python",
    "completion": "completion bash",
}
"""An example of each command, without the word ``interposer``."""

_SYNONYMS: Final = {
    **dict.fromkeys(("info", "show", "inspect", "summary"), "explain"),
    **dict.fromkeys(("infer", "predict", "execute"), "run"),
    **dict.fromkeys(("list", "devices", "engines", "providers"), "backends"),
    **dict.fromkeys(("test", "validate", "verify", "check", "diff"), "compare"),
    **dict.fromkeys(("time", "perf", "measure"), "bench"),
    **dict.fromkeys(("optimize", "build", "save"), "compile"),
    **dict.fromkeys(("timeline", "record"), "trace"),
    **dict.fromkeys(("export", "to", "translate"), "convert"),
    "calibrate": "quantize",
    "operators": "ops",
    "version": "--version",
}
"""The commands that people mean by words which other programs have as commands."""

NO_MEANS: Final = {
    "bench": "no backend could run the network, or none within --threshold",
    "run": "the median time of a run is above --threshold",
    "compare": "the backends differ by more than is allowed",
    "check-backend": "the backend does not conform",
}
"""The meaning of exit status 1, for each command that answers a question."""
_DESCRIPTION: Final = "Divide a neural network among backends, say why, and run it."
_OF_WRITING: Final = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}
"""The `errno` values of write errors; files are written by a function whose errors name the file."""
_NUMBERS: Final = re.compile(r"[\[ ]*[-+]?\.?\d[-+.,\de \[\]]*")
"""Numbers in place of the path of a file with them."""
ERROR: Final = 2
PIPE_CLOSED: Final = 141  # the status of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; `argv` are the arguments after ``interposer``.

    Returns:
        The exit status, by one rule for all commands: 0 if the command succeeded; 1 if it succeeded and its answer is
        "no" (see `NO_MEANS`); 2 after any error, wrong usage included, with a message on standard error; 130 after an
        interruption by the user; 141 if the reader of the output has closed the pipe.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        prepare_streams()
        return _run(words)
    except BrokenPipeError:
        discard_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        discard_output()
        return interrupts.STATUS


def _run(words: Sequence[str]) -> int:
    try:
        status = _executed(words)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except Exception as error:
        if interrupts.happened() or any(isinstance(cause, KeyboardInterrupt) for cause in _causes(error)):
            raise KeyboardInterrupt from error
        _report(error, "--debug" in words)
        return ERROR
    if interrupts.happened():  # and code in between has caught the exception
        raise KeyboardInterrupt
    return status


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and all from which it follows: KeyboardInterrupt, for example, may interrupt an import."""
    visited_ids = set[int]()
    while error is not None and id(error) not in visited_ids:
        visited_ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _executed(words: Sequence[str]) -> int:
    try:
        words = _help_as_option(words)
        command, place = _command(words)
        if command is None:
            return _without_command(words)
        words = [*words[:place], command, *words[place:]] if words[place] != command else words
        return _executed_command(command, [*words[:place], *words[place + 1 :]], words)
    except SystemExit as stop:  # after --help, --version and wrong usage
        return int(stop.code or 0)


def _help_as_option(words: Sequence[str]) -> Sequence[str]:
    """Return ``help COMMAND`` as ``COMMAND --help``, and other words as they are."""
    is_help = words[:1] == ["help"] and not os.path.exists("help")
    return [*words[1:2], "--help"] if is_help else words


def _executed_command(command: str, arguments: list[str], words: Sequence[str]) -> int:
    parser = parser_of(command)
    args = _with_settings(command, parser, arguments)
    args.command, args.words = command, tuple(words)
    with log_messages("debug" if args.debug else args.log_level or "warning"):
        check_settings()
        _warn_of_unknown_variables()
        execute = _module(command).execute
        interrupts.raise_first()  # it may have to clean up
        try:
            return int(execute(args) or 0)
        except InvalidArgumentError as error:
            _name_defaults(error, args)
            raise


def _name_defaults(error: InvalidArgumentError, args: argparse.Namespace) -> None:
    """Add to a message about an option that a settings file has set where this is written."""
    message = in_options(error)
    sources = [default.source for default in getattr(args, "defaults", ()) if default.flag in message]
    if sources:
        error.args = (f"{message} (set by {', '.join(sources)})",)


def _with_settings(command: str, parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Return the arguments of a command, with the defaults of the settings files for those that are not given."""
    if command == "completion" or "--no-settings" in arguments or not {"-h", "--help"}.isdisjoint(arguments):
        return parsed(parser, arguments)
    from interposer.cli.settings import arguments_with_defaults  # noqa: PLC0415 - not needed for help

    return arguments_with_defaults(command, parser, arguments, _all_parsers)


def _all_parsers() -> dict[str, Parser]:
    return {command: parser_of(command) for command in COMMANDS}


def _warn_of_unknown_variables() -> None:
    for name, suggestion in unknown_variables().items():
        logging.getLogger("interposer").warning("the environment variable %s is unknown%s", name, suggestion)


def _report(error: Exception, debug: bool) -> None:
    if debug:
        print_error(traceback.format_exc().rstrip())
    for cause in _causes(error) if _lacks_memory(error) else ():
        cause.__traceback__ = None  # whose frames have the network in memory
    lines = f"interposer: {_message(error)}".split("\n")
    print_error("\n".join(map(printable, lines)))
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _message(error: Exception) -> str:
    """Return the sentence for an error; one that follows from too many open files says what to do."""
    too_many_files = _too_many_files(error)
    if too_many_files is None:
        return _sentence_of(error)
    message = _sentence_of(error if isinstance(error, InterposerError) else too_many_files)
    return f"{message}; ulimit -n shows and raises the limit of this process"


def _sentence_of(error: Exception) -> str:
    if isinstance(error, LimitExceededError) and error.what in ("memory", "arithmetic"):
        option = "--limit-bytes" if error.what == "memory" else "--limit-operations"
        return f"{str(error).partition(';')[0]}; raise it with {option} if the file is trusted"
    if isinstance(error, UnsupportedLayerError):
        return f"{in_options(error)}{_hint_of_reference(error)}"
    if isinstance(error, InterposerError):
        return in_options(error)
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        return "the working directory was deleted; change to another folder"
    if isinstance(error, OSError):
        return _sentence_of_system(error)
    if isinstance(error, MemoryError):
        return ": ".join(filter(None, ("there is not enough memory", str(error))))
    if _lacks_memory(error):
        return "there is not enough memory"
    description = f"{type(error).__name__}: {error}".partition("\n")[0]
    return f"unexpected {description}; this is a defect of Interposer, and --debug shows the traceback"


def _sentence_of_system(error: OSError) -> str:
    name = error.filename or ("standard output" if error.errno in _OF_WRITING else None)
    sentence = ": ".join(map(str, filter(None, (name, error.strerror)))) or str(error)
    if not name or not isinstance(error, FileNotFoundError):
        return sentence
    path = os.fsdecode(name)
    address = download_hint(path)
    return f"{path}: {address}" if address else sentence + _hint_of_missing(path)


def _hint_of_missing(path: str) -> str:
    """Return a hint for the path of a missing file, which may be several paths, or have a name before it; or ""."""
    paths = path.split(",")
    if len(paths) > 1 and all(map(os.path.exists, paths)):
        return f"; several files are given with blanks between them: {' '.join(paths)}"
    name, colon, file = path.partition(":")
    if colon and os.path.exists(file):
        return f"; the name of an input is followed by '=': {name}={file}"
    if _NUMBERS.fullmatch(path):
        return f"; numbers are given in a file, as in: echo '{' '.join(re.findall(r'[^][, ]+', path))}' > x.txt"
    return missing_hint(path)


def _lacks_memory(error: Exception) -> bool:
    """Return True if an error follows from a lack of memory.

    A `SystemError` then comes from an import that fails without an exception, which is known to happen if the memory
    of the process is limited.
    """
    if any(isinstance(cause, MemoryError) for cause in _causes(error)):
        return True
    try:
        import resource  # noqa: PLC0415 - rarely needed
    except ImportError:  # also where too many files are open
        return False
    is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    return is_limited and any(isinstance(cause, SystemError) for cause in _causes(error))


def _too_many_files(error: Exception) -> OSError | None:
    """Return the error of the system from which an error follows because too many files are open; None otherwise."""
    causes = (cause for cause in _causes(error) if isinstance(cause, OSError))
    return next((cause for cause in causes if cause.errno == errno.EMFILE), None)


def _hint_of_reference(error: UnsupportedLayerError) -> str:
    """Return a line that says how to let the reference backend run the layers, or "" if the error is about it too."""
    ids = list(dict.fromkeys(refusal.backend for refusal in error.refusals))
    if not ids or "CpuRef" in str(error):
        return ""
    return f"\nthe reference backend runs every operator; name it last, as in --backends {','.join([*ids, 'CpuRef'])}"


# --- the command ------------------------------------------------------------------------------------------------------


def _command(words: Sequence[str]) -> tuple[str | None, int]:
    """Return the command that the words ask for, and the place of the word that says so; None if no word does.

    The path of a model in place of a command means ``run``, which is reported.
    """
    place = _place_of_command(words)
    if place is None:
        return None, 0
    word = words[place]
    if word in COMMANDS:
        return word, place
    if not _is_model(word):
        _refuse_command(word)
    line = " ".join(["interposer", *words[:place], "run", *words[place:]])
    print_error(printable(f"interposer: no command is given, so this is: {line}"))
    return "run", place


def _place_of_command(words: Sequence[str]) -> int | None:
    """Return the position of the first word that is neither an option nor the value of one."""
    is_option_value = False
    for place, word in enumerate(words):
        if not is_option_value and not word.startswith("-"):
            return place
        is_option_value = word == LEVEL_OPTION and not is_option_value
    return None


def _is_model(word: str) -> bool:
    """Return True for a path or an address; a folder ``build`` or ``test`` must be a SavedModel."""
    if word.lower() in _SYNONYMS and os.path.isdir(word):
        from interposer.formats.tensorflow import is_saved_model  # noqa: PLC0415 - rarely needed

        return is_saved_model(word)
    return os.path.exists(word) or "://" in word


def _refuse_command(word: str) -> None:
    if os.sep in word or "." in word:
        raise InvalidArgumentError(
            f"{word}: there is no such file, and no command of this name"
            + (similar_file(word) or "; 'interposer' alone lists the commands")
        )
    hint = f"; did you mean {_SYNONYMS[word.lower()]!r}?" if word.lower() in _SYNONYMS else did_you_mean(word, COMMANDS)
    _main_parser().error(f"unknown command {word!r}{hint} (known: {', '.join(COMMANDS)})")


def _without_command(words: Sequence[str]) -> int:
    """Print the help, the version or the overview of the commands."""
    parser = _main_parser()
    parsed(parser, words)
    print("\n".join(_overview()))
    return 0


def _overview() -> list[str]:
    """Return the lines that say what each command does, with an example of each."""
    lines = [_DESCRIPTION, "", "usage: interposer COMMAND [options]", "       interposer MODEL [options], for run", ""]
    for command, summary in COMMANDS.items():
        lines += [f"  {command:14} {summary}", f"  {'':14}   interposer {EXAMPLES[command]}"]
    return [*lines, "", "interposer COMMAND --help describes a command and all its options."]


def _main_parser() -> Parser:
    command_lines = [f"  {name:14} {line}" for name, summary in COMMANDS.items() for line in _wrapped(summary)]
    parser = Parser(
        prog="interposer", description=_DESCRIPTION, usage="interposer COMMAND [options]",
        epilog="\n".join(["commands:", *command_lines, "", _statuses("the answer of the command is no")]),
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"interposer {__version__}")
    add_global_arguments(parser)
    return parser


def _wrapped(summary: str) -> list[str]:
    return textwrap.wrap(summary, 100)


def parser_of(command: str) -> Parser:
    return command_parser(command, _sentence(COMMANDS[command]), _statuses(NO_MEANS.get(command, "")))


def _statuses(meaning_of_one: str) -> str:
    rows = [("0", "success"), ("1", meaning_of_one)]
    rows += [("2", "an error, wrong usage included"), ("130", "interrupted by Ctrl-C")]
    return "\n".join(["exit status:", *(f"  {status:3}  {meaning}" for status, meaning in rows if meaning)])


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _module(command: str) -> ModuleType:
    with collector_paused():
        return import_module(f"interposer.cli.{command.replace('-', '_')}")
