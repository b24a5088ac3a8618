"""``interposer`` and ``python -m interposer``: the command line, which an interruption ends without a traceback."""

import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line with the words of this process, and return its exit status; 130 after an interruption."""
    try:
        from interposer.cli.main import main as run  # noqa: PLC0415 - so that its imports can be interrupted too

        return run()
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter would print a traceback while it exits


if __name__ == "__main__":
    sys.exit(main())
