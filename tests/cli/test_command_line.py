"""The command line as a whole: usage, exit statuses, messages, streams that close, and what is imported when."""

from __future__ import annotations

import json
import os
import pty
import resource
import shlex
import signal
import subprocess
import sys
import time

import pytest

from interposer import __version__
from interposer.cli import backends
from interposer.cli.main import COMMANDS, EXAMPLES, NO_MEANS, main, parser_of
from interposer.cli.parsing import parsed
from interposer.cli.tables import wrapped
from tests import warm
from tests.cli import networks
from tests.parameters import one_in

NEW_INTERPRETER = [sys.executable, "-m", "interposer"]


def interposer(*words: str) -> list[str]:
    """Return the words that run a command as a program."""
    return [*warm.python(), "-m", "interposer", *words]


def started(*words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(interposer(*words), capture_output=True, text=True, check=False, **settings)


def test_help_names_the_commands(capsys):
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f" {name} {line}" in text for name, line in COMMANDS.items())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"usage: interposer {command} " in capsys.readouterr().out


def test_a_deleted_working_directory_is_named(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert main(["run", "net.txt", "--random"]) == 2
    assert capsys.readouterr().err == "interposer: the working directory was deleted; change to another folder\n"


def test_too_many_open_files_are_an_error_with_what_to_do(tmp_path, capsys):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    main(["run", str(tmp_path), "--random"])  # imports what it needs
    capsys.readouterr()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        assert main(["run", str(tmp_path), "--random"]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "Too many open files; ulimit -n shows and raises the limit of this process\n" in capsys.readouterr().err


@pytest.mark.parametrize("cause", [MemoryError(), MemoryError("Unable to allocate 512. KiB")])
def test_an_error_that_follows_from_a_lack_of_memory_is_reported_as_one(cause, monkeypatch, capsys):
    def execute(args):
        raise RuntimeError("no such module") from cause

    monkeypatch.setattr(backends, "execute", execute)
    assert main(["backends"]) == 2
    assert capsys.readouterr().err == "interposer: there is not enough memory\n"


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"interposer {__version__}\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["rnu"], f"interposer: error: unknown command 'rnu'; did you mean 'run'? (known: {', '.join(COMMANDS)})"),
        (["check-backend"], "interposer check-backend: error: "
         "name a backend; 'interposer backends' lists those that are installed"),
        (["run"], "interposer run: error: the following arguments are required: network"),
        (["run", "n", "--lables", "x"], "interposer run: error: unknown argument '--lables'; did you mean '--labels'?"),
        (["run", "n", "--timeout", "3"], "interposer run: error: unknown argument '--timeout'; "
         "no option limits the time of a run; interposer serve --timeout limits that of a request"),
        (["run", "n", "--put"], "interposer run: error: unknown argument '--put'; did you mean '--input'?"),
        (["run", "n", "--zzzzz"], "interposer run: error: unknown argument '--zzzzz'"),
        (["plan", "n", "--random"], "interposer plan: error: unknown argument '--random'; "
         "plan makes its inputs itself, as times seldom depend on them"),
        (["quantize", "n", "--random"], "interposer quantize: error: unknown argument '--random'; "
         "the ranges come from real inputs, which --data gives"),
        (["backends", "CpuRef"], "interposer backends: error: unknown argument 'CpuRef'"),
        (["run", "n", "--top", "0"],
         "interposer run: error: argument --top: expected a whole number of 1 or more, not '0'"),
        (["run", "n", "--mean", "x"],
         "interposer run: error: argument --mean: expected a number, or several with commas, not 'x'"),
        (["run", "n", "--std", "1,0"], "interposer run: error: argument --std: expected positive numbers, not '1,0'"),
        (["explain", "n", "--backends", ","],
         "interposer explain: error: argument --backends: expected ids of backends with commas between them, not ','"),
        (["explain", "n", "--shape", "x"],
         "interposer explain: error: argument -s/--shape: expected NAME=1x3x8 or NAME=1, not 'x'"),
        (["explain", "n", "--limit-bytes", "1.5G"],
         "interposer explain: error: argument --limit-bytes: "
         "expected a number, a number with K, M, G or T, or 'none', not '1.5G'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_status_2_and_says_what_is_wrong(words, text, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == text
    assert captured.out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ops", "--backend", "CpuReff"], "unknown backend 'CpuReff'; did you mean 'CpuRef'? (known: "),
        (["ops", "Convolution4d"], "unknown operator 'Convolution4d'; did you mean 'Convolution3d'?\n"),
        (["explain", "nothing.onnx"], "nothing.onnx: the file cannot be read: No such file or directory\n"),
        (["run", "nothing.onnx", "--labels", "nothing.txt"], "nothing.txt: No such file or directory\n"),
    ],
)
def test_an_error_of_the_user_is_status_2_and_one_message(words, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"interposer: {text}")
    assert captured.out == ""


def test_without_a_command_each_one_is_shown_with_an_example(capsys):
    assert main([]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    for command, summary in COMMANDS.items():
        number = lines.index(f"  {command:14} {summary}")
        assert lines[number + 1].strip().startswith(f"interposer {command}")
    assert captured.err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_the_example_of_a_command_is_understood(command, capsys):
    words = shlex.split(EXAMPLES[command])
    assert words[0] == command
    parsed(parser_of(command), words[1:])
    assert capsys.readouterr().err == ""


def test_an_error_explains_the_one_argument_that_is_wrong(capsys):
    assert main(["run", "net.onnx", "--top", "0"]) == 2
    assert capsys.readouterr().err == (
        "usage: interposer run [options] network\n"
        "       --top N: how many classes to show (default: 5)\n"
        "       interposer run --help describes all arguments\n"
        "interposer run: error: argument --top: expected a whole number of 1 or more, not '0'\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_no_error_has_more_than_a_few_lines(command, capsys):
    assert main([command, "--nothing-like-this"]) == 2
    assert len(capsys.readouterr().err.splitlines()) <= 5


@pytest.mark.parametrize(("words", "option"), [(["help"], ["--help"]), (["help", "ops"], ["ops", "--help"])])
def test_help_is_the_option_of_the_same_name(words, option, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert main(option) == 0
    assert capsys.readouterr().out == shown


def test_the_path_of_a_model_is_run(capsys, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    networks.doubler(tmp_path)
    assert main(["--log-level", "error", "doubler.onnx", "--random", "--backends", "CpuRef"]) == 0
    captured = capsys.readouterr()
    assert "1 layer on CpuRef" in captured.out
    assert captured.err == (
        "interposer: no command is given, so this is: "
        "interposer --log-level error run doubler.onnx --random --backends CpuRef\n"
    )


@pytest.mark.parametrize("words", [["nosuch.onnx"], ["folder/nosuch"], ["--debug", "x.tflite"]])
def test_a_path_without_a_file_is_no_command(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(
        f"interposer: {words[-1]}: there is no such file, and no command of this name; "
        "'interposer' alone lists the commands\n"
    )


def test_a_folder_with_the_name_of_another_programs_command_is_a_model_only_if_it_has_one(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    assert main(["build", "net.onnx"]) == 2
    assert "unknown command 'build'; did you mean 'compile'?" in capsys.readouterr().err
    (tmp_path / "build" / "saved_model.pb").touch()
    assert main(["build", "--random"]) == 2
    assert "no command is given, so this is: interposer run build --random\n" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "shown"), [("debug", True), ("info", False), ("warning", False), ("error", False)])
def test_the_level_of_messages_is_chosen(level, shown, capsys, tmp_path):
    pytest.importorskip("onnx")
    network = networks.doubler(tmp_path)
    assert main(["run", network, "--random", "--backends", "CpuRef", "--log-level", level]) == 0
    assert ("DEBUG interposer" in capsys.readouterr().err) is shown
    assert main(["--log-level", level, "run", network, "--random", "--backends", "CpuRef"]) == 0
    assert ("DEBUG interposer" in capsys.readouterr().err) is shown


def test_the_arguments_of_every_command_are_read_without_numpy():
    code = """
import sys
from interposer.cli.main import COMMANDS, main
for command in COMMANDS:
    assert main([command, "--42"]) == 2
    print(command, "numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{command} False" for command in COMMANDS]


def test_debug_adds_the_traceback(capsys):
    assert main(["ops", "Convolution4d", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("interposer: unknown operator 'Convolution4d'; did you mean 'Convolution3d'?\n")
    assert main(["--debug", "ops", "Convolution4d"]) == 2
    assert "Traceback" in capsys.readouterr().err


def broken(args: object) -> None:
    raise ZeroDivisionError("division by zero\nand more")


def test_an_unexpected_exception_is_called_a_defect_of_interposer(capsys, monkeypatch):
    monkeypatch.setattr(backends, "execute", broken)
    assert main(["backends"]) == 2
    assert capsys.readouterr().err == (
        "interposer: unexpected ZeroDivisionError: division by zero; this is a defect of Interposer, "
        "and --debug shows the traceback\n"
    )


def test_every_help_has_the_exit_statuses(capsys):
    main(["--help"])
    whole = capsys.readouterr().out
    assert "exit status:\n  0    success\n  1    the answer of the command is no\n  2    an error" in whole
    for command in COMMANDS:
        main([command, "--help"])
        said = capsys.readouterr().out
        assert (f"  1    {NO_MEANS[command]}\n" if command in NO_MEANS else "  0    success\n  2    an error") in said


def test_a_misspelt_variable_of_the_environment_is_told(capsys, monkeypatch):
    monkeypatch.setenv("INTERPOSER_NUM_THREAD", "2")
    monkeypatch.setenv("INTERPOSER_OF_ANOTHER_PROGRAM", "2")
    assert main(["ops", "Softmax"]) == 0
    assert capsys.readouterr().err == (
        "interposer: the environment variable INTERPOSER_NUM_THREAD is unknown; "
        "did you mean 'INTERPOSER_NUM_THREADS'?\n"
    )


def test_a_file_whose_name_begins_with_a_dash_is_given_with_its_folder(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-net.onnx").touch()
    assert main(["run", "net.onnx", "-net.onnx"]) == 2
    assert capsys.readouterr().err.endswith(
        "unknown argument '-net.onnx'; a file whose name begins with a dash is given as './-net.onnx'\n"
    )


# --- as a program -----------------------------------------------------------------------------------------------------


def test_it_starts_as_a_module_and_prints_json():
    words = [*NEW_INTERPRETER, "backends", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "CpuRef" in [record["id"] for record in json.loads(done.stdout)]


def test_the_modules_of_commands_do_not_import_the_conformance_kit():
    commands = ["run", "explain", "bench", "ops", "compile", "serve"]
    check = "print('interposer.testing' in sys.modules)"
    code = "import sys\n" + "\n".join(f"import interposer.cli.{command}; {check}" for command in commands)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert dict(zip(commands, done.stdout.splitlines(), strict=True)) == dict.fromkeys(commands, "False")


def test_a_run_imports_nothing_that_only_other_commands_need(tmp_path):
    """Each of these modules has a long import, or compiles many classes."""
    unused = [
        "email.message", "html", "importlib.metadata", "statistics", "interposer.analysis.bench",
        "interposer.ir.dot", "interposer.profiling.memory", "interposer.profiling.profiles",
        "interposer.report.explanation", "interposer.saved.description", "interposer.session.placement.measured",
        "interposer.session.placement.search", "interposer.testing",
    ]  # fmt: skip
    network = tmp_path / "net.txt"
    network.write_text('graph "net" {\n %x = Input : float32[2]\n %y = Softmax %x\n Output %y\n}\n')
    code = f"""
import sys
from interposer.__main__ import main
sys.argv = ["interposer", "run", {os.fspath(network)!r}, "--random", "--json"]
main()
print([name for name in {unused!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_does_not_wait_for_numpy():
    code = """
import sys
from interposer.cli.main import COMMANDS, main
for command in COMMANDS:
    if command != "quantize":  # packages can add observers, which its help lists
        main([command, "--help"])
main(["--help"])
print("numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_reader_that_goes_away_is_no_error():
    program = subprocess.Popen(interposer("ops"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait() == 141
    program.stderr.close()


@pytest.mark.parametrize("word", ["ops", "--help"])
def test_a_full_disk_is_told_once(word):
    with open("/dev/full", "w") as full:
        done = subprocess.run(interposer(word), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "interposer: standard output: No space left on device\n")


@pytest.mark.parametrize("words", [["ops", "Nothing"], ["ops", "--nothing"], ["run", "absent.onnx", "--debug"]])
def test_a_full_standard_error_changes_no_exit_status(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(interposer(*words), stdout=subprocess.PIPE, stderr=full, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("words", one_in(2, ["ops", "ops --json", "--help", "ops --help", "backends", "--version"]))
def test_a_closed_standard_output_is_an_error_with_one_line(words):
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(interposer())} {words} >&-"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "interposer: standard output: Bad file descriptor\n")


def test_a_closed_standard_error_loses_messages_and_nothing_else():
    command = f"{shlex.join(NEW_INTERPRETER)} ops Nothing 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_all_streams_may_be_closed(tmp_path):
    command = f"{shlex.join(NEW_INTERPRETER)} new-backend Npu --lang python --folder '{tmp_path}/npu' <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2
    assert b"import" in (tmp_path / "npu" / "pyproject.toml").read_bytes() or os.listdir(tmp_path / "npu")


@pytest.mark.parametrize("words", one_in(3, [["--help"], ["run", "--help"], ["--version"], ["ops", "--json"]]))
def test_whatever_is_printed_may_be_cut_by_its_reader(words):
    command = f"{shlex.join(interposer(*words))} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def interrupted_import(args: object) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ImportError("initialization of the extension module failed") from None


def test_an_error_that_follows_from_an_interruption_is_one(capsys, monkeypatch):
    monkeypatch.setattr(backends, "execute", interrupted_import)
    assert main(["backends"]) == 130
    assert capsys.readouterr().err == ""


def test_an_interruption_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(backends, "execute", lambda args: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for background processes
    try:
        assert main(["backends"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr() == ("", "")


def test_a_label_that_the_terminal_cannot_show_is_escaped():
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    words = [*NEW_INTERPRETER, "ops", "gr\u00fcn"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=ascii_only)
    expected = "interposer: unknown operator 'gr\\xfcn'; interposer ops lists all operators\n"
    assert (done.returncode, done.stderr) == (2, expected)


def test_a_character_that_has_a_plain_form_is_not_escaped():
    code = "from interposer.cli.streams import prepare_streams; prepare_streams(); print('3 \u00b5s, 2\u00d73 \u20ac')"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ascii_only)
    assert done.stdout == "3 us, 2x3 \\u20ac\n"


@pytest.mark.parametrize("delay", one_in(3, [0, 0.02, 0.05, 0.1, 0.2, 0.4]))
def test_an_interruption_at_any_time_leaves_no_traceback(delay):
    code = """
import signal, sys
from interposer.__main__ import main

def allow(event, args):
    if event == "import" and args[0] == "interposer.cli.main":  # which `main` imports first
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
sys.addaudithook(allow)
print("begun", flush=True)
sys.exit(main())
"""
    words = [sys.executable, "-c", code, "ops"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        time.sleep(delay)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate()
    assert said == ""
    assert program.returncode in (0, 130, -signal.SIGINT)


def on_terminal(*words: str, columns: int = 100, **variables: str) -> str:
    """What the program shows on a terminal."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), **variables}
    line = interposer(*words)
    with subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as program:
        os.close(theirs)
        shown = b""
        while chunk := _chunk(ours):
            shown += chunk
    os.close(ours)
    assert program.returncode == 0
    return shown.decode()


def _chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux reports that the other side is closed
        return b""


def test_on_a_terminal_tables_are_drawn_to_its_width():
    pytest.importorskip("rich")
    shown = on_terminal("ops")
    assert "\x1b[1m" in shown  # bold titles
    assert "─────" in shown
    assert "Convolution2d" in shown


def test_no_color_leaves_out_bold_letters_too():
    pytest.importorskip("rich")
    assert "\x1b" not in on_terminal("ops", NO_COLOR="1")
    assert "\x1b[1m" in on_terminal("ops", NO_COLOR="")


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_breaks_no_install_command(columns):
    pytest.importorskip("rich")
    lines = [line.strip() for line in on_terminal("backends", columns=columns, NO_COLOR="1").splitlines()]
    commands = [line for line in lines if "pip" in line]
    assert all(line.startswith("pip install ") and line.endswith("]'") for line in commands)
    assert "CpuRef" in lines


def test_texts_are_broken_between_words_and_commands_are_not_broken():
    said = "the package onnxruntime is not installed: pip install 'interposer-nn[onnxruntime]'"
    assert wrapped(said, 30, "  ") == [
        "  the package onnxruntime is", "  not installed:", "  pip install 'interposer-nn[onnxruntime]'",
    ]  # fmt: skip
    assert wrapped("", 30) == []


@pytest.mark.parametrize(("variable", "value", "expected"), [
    ("NUM_THREADS", "abc", "a whole number that is not negative"),
    ("NUM_THREADS", "-1", "a whole number that is not negative"),
    ("CHECK_BACKENDS", "maybe", "yes or no (true or false in a file)"),
    ("UNLOAD_LIBRARIES", "2", "yes or no (true or false in a file)"),
    ("PROBE_SECONDS", "x", "a number of seconds that is not negative"),
    ("ISOLATION_DEADLINE_SECONDS", "nan", "a number of seconds that is not negative"),
    ("ISOLATION_MAX_RESTARTS", "1.5", "a whole number that is not negative"),
    ("BACKEND_ALLOW_LIST", "relative", "the absolute path of a file"),
])  # fmt: skip
@pytest.mark.parametrize("words", [["backends"], ["ops", "Softmax"], ["run", "no.onnx"]])
def test_a_wrong_setting_in_the_environment_is_an_error_of_every_command(
    words, variable, value, expected, capsys, monkeypatch
):
    monkeypatch.setenv(f"INTERPOSER_{variable}", value)
    assert main(words) == 2
    assert capsys.readouterr() == ("", f"interposer: INTERPOSER_{variable} is {value!r}; expected {expected}\n")
