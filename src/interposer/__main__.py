"""``interposer`` and ``python -m interposer``: the command line, which an interruption ends without a traceback."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line with the words of this process, and return its exit status; 130 after an interruption."""
    try:  # what is imported here takes most of the time in which a short command can be interrupted
        import signal  # noqa: PLC0415

        try:
            from interposer.cli.main import main as run  # noqa: PLC0415

            return run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter would print a traceback while it exits
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
