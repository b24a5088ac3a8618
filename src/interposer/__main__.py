"""The command line, as ``interposer`` and as ``python -m interposer``. Ctrl-C ends it without a traceback."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line with `sys.argv`, and return its exit status.

    It is 130 after a keyboard interrupt, and 2 if another package has overwritten this one.
    """
    try:  # the imports take most of a short command's time, so an interrupt is likely to arrive during them
        import signal  # noqa: PLC0415

        from interposer._distribution import overwritten  # noqa: PLC0415

        reason = overwritten()
        if reason:
            print(f"interposer: {reason}", file=sys.stderr)
            return 2
        try:
            from interposer.cli.main import main as run  # noqa: PLC0415

            return run()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the interpreter would print a traceback while it exits
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
