"""The command line, as ``interposer`` and as ``python -m interposer``. Ctrl-C ends it without a traceback."""

import os
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line with `sys.argv`, and return its exit status.

    It is 130 after a keyboard interrupt, and 2 if another package has overwritten this one.
    """
    try:
        from interposer._distribution import overwritten  # noqa: PLC0415

        reason = overwritten()
        if reason:
            print(f"interposer: {reason}", file=sys.stderr)
            return 2
        from interposer.cli import interrupts  # noqa: PLC0415 - from here on, the modules' imports can be interrupted

        interrupts.end_at_once()
        try:
            from interposer.cli.main import main as run  # noqa: PLC0415

            return run()
        finally:
            interrupts.end_at_once()  # the interpreter would print a traceback while it exits
    except KeyboardInterrupt:
        return 130
    except MemoryError:  # not even its report had enough
        os.write(2, b"interposer: there is not enough memory\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
