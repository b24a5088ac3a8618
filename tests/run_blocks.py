"""Run blocks of Python from the documentation, each group of them in a fork of this process (see documents.py).

Each line of the standard input is a request: an object with the blocks and the folder in which they run. The answer is
a line with a text in JSON, which is empty if all went well.
"""

import contextlib
import doctest
import io
import json
import os
import sys
import traceback

import interposer

for name in interposer.__all__:  # else each fork imports what the public names need
    getattr(interposer, name)

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF


def run(blocks: list[tuple[str, int]]) -> str:
    """Run blocks in one namespace, as a reader would type them; return what went wrong, or an empty text."""
    namespace, printed = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for text, line in blocks:
            problem = _run_session(text, line, namespace) if ">>> " in text else _run_script(text, line, namespace)
            if problem:
                return problem
    return ""


def _run_session(text: str, line: int, namespace: dict) -> str:
    session = doctest.DocTestParser().get_doctest(text, namespace, "session", "page", line - 1)
    session.globs = namespace  # get_doctest copies the names; later blocks need those of this one
    problems = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(session, out=problems.write, clear_globs=False)
    return problems.getvalue()


def _run_script(text: str, line: int, namespace: dict) -> str:
    try:
        exec(compile("\n" * (line - 1) + text, "page", "exec"), namespace)
    except Exception:
        return traceback.format_exc()
    return ""


def answer(request: dict) -> str:
    """Run the blocks of a request in a fork; return what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(request["folder"])
        sys.path.insert(0, "")  # an interactive interpreter finds the modules of its folder
        with open(writing, "w", encoding="utf-8") as pipe:
            pipe.write(run(request["blocks"]))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        problem = pipe.read()
    _, status = os.waitpid(child, 0)
    return problem or (f"the interpreter ended with status {status}" if status else "")


if __name__ == "__main__":
    replies, sys.stdout = sys.stdout, sys.stderr
    for received in sys.stdin:
        print(json.dumps(answer(json.loads(received))), file=replies, flush=True)
