"""``python -m bisector``, and the entry point of the ``bisector`` script."""

import io
import os
import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command line; Ctrl-C while it is still being loaded ends it as it does later."""
    _open_standard_streams()
    try:
        from bisector import cli  # noqa: PLC0415 - what takes long to load is interrupted, too

        return cli.main()
    except KeyboardInterrupt:
        sys.stderr.write("bisector: interrupted\n")
        return _INTERRUPTED


def _open_standard_streams() -> None:
    """Open what the caller has closed (``>&-``): else the next file opened would be standard output for children."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the locale's encoding lacks becomes "?"


if __name__ == "__main__":
    raise SystemExit(main())
