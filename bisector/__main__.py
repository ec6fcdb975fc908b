"""``python -m bisector``, and the entry point of the ``bisector`` script."""

from bisector.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
