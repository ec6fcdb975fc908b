"""``plot``: pictures of what was measured."""

import argparse
from pathlib import Path

from bisector.commands.arguments import Verbs, add_run_dir, add_verb, count, run_directory
from bisector.commands.output import note, save, write
from bisector.core.errors import UserError
from bisector.report import illustrations
from bisector.report.drawing import Picture, draw
from bisector.report.illustrations import Kind
from bisector.store.store import Store

_PLOTS = "plots"
_EXAMPLES = """\
examples:
  bisector plot                              every plot of the newest run, also while it runs
  bisector plot --kind curves -o before-and-after.svg
  bisector plot --kind curves --trial 4 --trial 7 -o curves.png
kinds:
  curves     IOPS over time: each job and their sum, a panel for each run, before and after the change
  commits    the value that decides of each commit in the order of history, with levels and the step
  posterior  where in the range the change was believed to be after each trial
"""


def add(verbs: Verbs) -> None:
    """Register ``plot``."""
    verb = add_verb(
        verbs,
        "plot",
        plot,
        examples=_EXAMPLES,
        disturbs=True,
    )
    verb.add_argument("--kind", type=Kind, choices=tuple(Kind), action="append", default=[],
                      help="which plot; repeatable (default: all)")  # fmt: skip
    verb.add_argument("--trial", type=count, action="append", default=[], metavar="N",
                      help="curves of trial N, as numbered in the table; repeatable")  # fmt: skip
    verb.add_argument("--format", type=Picture, choices=tuple(Picture), help="default: by the ending of FILE, else png")
    verb.add_argument("-o", "--output", type=Path, metavar="FILE|DIR",
                      help=f"a file, or a directory (default: {_PLOTS} in the run directory)")  # fmt: skip
    add_run_dir(verb)


def plot(arguments: argparse.Namespace) -> int:
    """Draw and say where the files are."""
    run = run_directory(arguments)
    kinds = tuple(dict.fromkeys(arguments.kind)) or ((Kind.CURVES,) if arguments.trial else tuple(Kind))
    paths = _paths(kinds, arguments.output or run.path / _PLOTS, arguments.format)
    with Store.open(run.database, readonly=True) as store:
        source = illustrations.source(run, store, tuple(dict.fromkeys(arguments.trial)))
    made = {kind: illustrations.plotted(kind, source) for kind in kinds}
    for complaint in (text for one in made.values() for text in one.complaints):
        note(f"bisector: not drawn: {complaint}")
    missing = [kind for kind, one in made.items() if one.plot is None]
    if len(missing) == len(made) or (missing and arguments.kind):
        raise UserError("; ".join(_NOTHING[kind] for kind in missing), "bisector status")
    for kind, one in made.items():
        if one.plot is None:
            note(f"bisector: {_NOTHING[kind]}")
            continue
        path, picture = paths[kind]
        save(path, draw(one.plot, picture))
        write(f"{path}\n")
    return 0


_NOTHING = {
    Kind.CURVES: "no curves: these trials left no IOPS log",
    Kind.COMMITS: "no figures by commit: nothing is measured yet",
    Kind.POSTERIOR: "no posterior: it needs both ends measured, and the strategy bayes",
}


def _paths(kinds: tuple[Kind, ...], output: Path, wanted: Picture | None) -> dict[Kind, tuple[Path, Picture]]:
    """Where each plot goes, and as what; a name that ends like a picture is a file. Raises :class:`UserError`."""
    ending = output.suffix.removeprefix(".").lower()
    if ending not in tuple(Picture) or output.is_dir():
        picture = wanted or Picture.PNG
        return {kind: (output / f"{kind}.{picture}", picture) for kind in kinds}
    if len(kinds) > 1:
        raise UserError(f"{output} is one file, and there are {len(kinds)} plots", f"one of them: --kind {kinds[0]}")
    if wanted not in (None, Picture(ending)):
        raise UserError(f"{output} has the ending of another format than --format {wanted}", "leave out --format")
    return {kind: (output, Picture(ending)) for kind in kinds}
