"""Any command as a workload: it runs on the stack several times, and is judged by its time or by figures it prints.

A setting describes each figure, which is then searched for in the command's output: ``tps=1/s,higher`` is a line
``tps=1500`` or ``tps = 1.5 k/s``, ``p99=ms,lower,json:latency.p99`` a value in a JSON document (RFC 8259),
``tps=1/s,higher,regex:tps = ([0-9.]+)`` what the group of a regular expression matches in a line. The output comes from
the guest: its length is limited before, and output that does not match the description is refused.
"""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Self, TypeAlias

from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.figures import Run, run_words
from bisector.core.metric import Better, Unit, custom, short
from bisector.core.objective import Objective
from bisector.core.setting import Form, Meta, Option, Problem, Size
from bisector.core.shell import TIMED_OUT, Step, run_steps
from bisector.core.units import size_text
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import Files
from bisector.workload import matching, repetitions
from bisector.workload.base import DefaultObjective, Locally, RunSite, Workload

EXAMPLE = "throughput=MiB/s,higher"
_QUOTED = 60
_NUMBER = r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?"
_VALUE = re.compile(rf"(?P<number>{_NUMBER})\s*(?P<unit>\S{{0,20}})", re.ASCII)
# Keys separated by points; a key that contains points is in quotes, like a string in JSON.
_KEY = re.compile(r'"(?:[^"\\]|\\["\\/])+"|[^".]+')
_PATH = re.compile(rf"(?:{_KEY.pattern})(?:\.(?:{_KEY.pattern}))*")
_INDEX = re.compile(r"[0-9]{1,9}")
_SPEC = re.compile(r"(?P<name>[^=]*)=(?P<unit>[^,]*),(?P<better>[^,]*)(?:,(?P<how>[^:,]*):(?P<where>.*))?")
_FORMS: Mapping[str, str] = {
    "line": "one line such as '{name}=12.5 {unit}' on standard output",
    "json": "one JSON document on standard output, with a number at {where}",
    "regex": "one line on standard output that {where} matches, with a number in its group",
}
# Applies an expression to a text, see :func:`bisector.workload.matching.matched`.
Matches: TypeAlias = Callable[[str, str], list[str]]


@dataclass(frozen=True, slots=True)
class CommandFigure:
    """One figure in the output; ``text`` is the user's description of it.

    ``source`` is one of :data:`_FORMS`, ``where`` a path in JSON or a regular expression.
    """

    text: str
    name: str
    typed_unit: str
    better: Better
    source: str = "line"
    where: str = ""

    @property
    def metric(self) -> str:
        """The name of the figure's metric."""
        return custom(self.name, Unit.of(self.typed_unit), self.better)

    def value(self, output: str, matches: Matches = matching.matched) -> float:
        """The figure in the unit of its metric; raises :class:`Unusable` unless ``output`` has exactly one.

        ``matches`` applies the user's regular expression.
        """
        if self.source == "json":
            number, unit = self._in_json(output), ""
        else:
            if self.source == "regex":
                found = matches(self.where, output)
            else:
                line = re.compile(rf"\s*{re.escape(self.name)}\s*=\s*(.*)")
                lines = (line.fullmatch(one[: matching.LONGEST_LINE]) for one in output.splitlines())
                found = [one[1] for one in lines if one]
            if len(found) > 1:
                values = ", ".join(text.strip()[:_QUOTED] for text in found[:3])
                raise self._unusable(f"it printed the figure {self.name} {len(found)} times ({values})")
            if not found:
                raise self._lacking()
            if (read := _VALUE.fullmatch(found[0].strip())) is None:
                raise self._unusable(f"the figure {self.name} is {found[0].strip()[:_QUOTED]!r}, which is not a number")
            number, unit = float(read["number"]), read["unit"]
        factor = Unit.of(self.typed_unit).factor(unit or self.typed_unit)
        if factor is None:
            raise self._unusable(f"the figure {self.name} is printed in {unit}, and not in {self.typed_unit}")
        if not math.isfinite(number * factor):
            raise self._unusable(f"the figure {self.name} is {number:g}")
        return number * factor

    def _in_json(self, output: str) -> float:
        try:
            value = json.loads(output)
        except (ValueError, RecursionError) as error:
            if not output.strip():
                raise self._lacking() from error
            raise self._unusable(f"what it printed is not JSON: {str(error)[:_QUOTED]}") from error
        for key in (json.loads(word) if word.startswith('"') else word for word in _KEY.findall(self.where)):
            if isinstance(value, list) and _INDEX.fullmatch(key) and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise self._lacking()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            shown = json.dumps(value)[:_QUOTED]
            raise self._unusable(f"the figure {self.name} is {shown}, which is not a number")
        try:
            return float(value)
        except OverflowError as error:
            raise self._unusable(f"the figure {self.name} is a number of too many digits") from error

    def _lacking(self) -> repetitions.Unusable:
        return self._unusable(f"it ended well and printed no figure {self.name}")

    def _unusable(self, message: str) -> repetitions.Unusable:
        form = _FORMS[self.source].format(name=self.name, unit=self.typed_unit, where=self.where)
        return repetitions.Unusable(message, f"expected {form}")


def read_figure(text: str) -> CommandFigure:
    """The figure that ``text`` describes; raises :class:`UserError`."""
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{text!r} describes no figure", f"expected NAME=UNIT,higher or lower, such as {EXAMPLE}")
    better, how, where = found["better"].strip(), found["how"], found["where"] or ""
    if better not in tuple(Better):
        raise UserError(f"{text!r}: which side is better, higher or lower?", f"such as {EXAMPLE}")
    if how not in (None, "json", "regex"):
        raise UserError(f"{text!r}: a figure is found by json:PATH or regex:EXPRESSION, not by {how}")
    name, unit = found["name"].strip(), found["unit"].strip()
    figure = CommandFigure(text.strip(), name, unit, Better(better), how or "line", where)
    _ = figure.metric
    if how == "json" and not _PATH.fullmatch(where):
        raise UserError(
            f"{figure.text!r}: {where!r} is not a path in JSON",
            'such as json:latency.p99 or json:0.tps; a key with points in quotes: json:clat."99.000000"',
        )
    if how == "regex":
        try:
            groups = re.compile(where).groups
        except re.error as error:
            raise UserError(f"{figure.text!r}: {error}", "Python's re has the syntax of regular expressions") from error
        if groups != 1:
            said = f"{groups} groups, and the figure is what one group matches"
            raise UserError(f"{figure.text!r}: {said}", "such as ([0-9.]+)")
    return figure


def _read_figures(raw: object, _base: Path | None) -> tuple[CommandFigure, ...]:
    if not isinstance(raw, (list, tuple)) or not all(isinstance(text, str) for text in raw):
        raise ValueError(raw)
    found = tuple(map(read_figure, raw))
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two figures are called {twice}", "give each a name of its own")
    return found


FIGURES = Form(f'a list such as ["{EXAMPLE}"]', _read_figures, lambda found: [one.text for one in found])


def matched_apart(locally: Locally, directory: Path) -> Matches:
    """A function that applies an expression in a separate process of this host, which gets its text in ``directory``.

    It raises :class:`UserError` if the process takes too long: that is the expression's fault, whatever the command
    printed on this commit. It raises :class:`InfraError` if Python does not run.
    """

    def matches(expression: str, text: str) -> list[str]:
        with NamedTemporaryFile("w", encoding="utf-8", newline="", dir=directory, suffix=".txt") as file:
            file.write(text)
            file.flush()
            done = locally((sys.executable, "-I", os.fspath(matching.__file__), expression, file.name), {})
        if done is None or done.exit_status not in (0, TIMED_OUT):
            raise InfraError(f"python does not run here: {done.stderr.strip()[-_QUOTED:] if done else sys.executable}")
        if done.exit_status == TIMED_OUT:
            raise UserError(
                f"the expression {expression!r} takes too long on what the command printed",
                "one without repetitions inside of repetitions, such as (a+)+, and with few .*",
            )
        found: list[str] = json.loads(done.stdout)
        return found

    return matches


_LONGEST = 10_000
_OF_GUESTS = ("/bin/", "/sbin/", "/usr/")  # programs that the guest may have itself
_ASIDE = "/var/tmp/bisector-run"  # noqa: S108 -- on the guest's own disk, if the stack has no file system


@dataclass(frozen=True, slots=True)
class Command(Workload):
    """The user's own command, with the files that it needs."""

    name = "command"
    chosen_by = "workload.command.line"
    shared = repetitions.SHARED

    # The settings, laid out as a table.
    # fmt: off
    line: Annotated[str, Meta(description="a command line for sh"), Option(
        "workload.command.line", "",
        "command that is measured, in a directory of the stack; chooses the workload command",
        flag="--command", metavar="COMMAND")]
    carry: Annotated[tuple[Path, ...], Meta(description='a list of paths such as ["./bench.sh"]'), Option(
        "workload.command.carry", (),
        "file that is carried into the guest; the command finds it in $CARRIED, and a program in its path",
        flag="--carry", metavar="FILE", repeat=True)]
    setup: Annotated[str, Meta(description="a command line for sh"), Option(
        "workload.command.setup", "", "command that runs once before, in the same directory, and is not measured",
        flag="--setup", metavar="COMMAND")]
    figures: Annotated[tuple[CommandFigure, ...], FIGURES, Option(
        "workload.command.figures", (),
        "figure that the command prints as a line NAME=VALUE, given as NAME=UNIT,higher or lower; append ,json:PATH or "
        ",regex:EXPRESSION to find it elsewhere in the output; its metric is custom:NAME, and the first one decides",
        flag="--figure", metavar=EXAMPLE, repeat=True)]
    runs: Annotated[repetitions.Repetitions, Option(
        "workload.command.runs", 3, "how often a run repeats the command; the median counts", 5)]
    state: Annotated[repetitions.GuestState, Option(
        "workload.command.page_cache", "dropped",
        "page cache before each repetition: dropped, filled by one more that does not count, or kept as it is")]
    size_bytes: Annotated[Size, Meta(ge=0), Option(
        "workload.command.size", 0,
        "how much a run writes to the stack, bytes: to check that it fits, and fills a cache")]
    # fmt: on

    def label(self) -> str:
        """The command itself."""
        return self.line

    def recipe(self) -> str:
        """The setup and the command, as shell text."""
        setup = f"{self.setup}   # once, not measured\n" if self.setup else ""
        return f"{setup}{self.line}   # {self.runs} times, page cache {self.state}\n"

    def deciding(self) -> DefaultObjective:
        """The first figure in the settings; if there is none, how long the command takes."""
        if self.figures:
            return DefaultObjective(Objective(self.figures[0].metric), "first --figure")
        return DefaultObjective(Objective("elapsed"), "workload command")

    def names(self) -> tuple[str, ...]:
        """The times of the command, and the figures that it prints."""
        return (*Workload.names(self), *(one.metric for one in self.figures))

    def full_name(self, name: str) -> str:
        """The name with unit and better side, as the settings describe the figure."""
        named = (one.metric for one in self.figures if short(one.metric) == name)
        return next(named, None) or Workload.full_name(self, name)

    def files(self) -> Files:
        """What one run writes: as much as the user says."""
        size = self.size_bytes
        sentence = f"workload.command.size is {size_text(size)}"
        return Files(size, sentence, 0, ("workload.command.size",), setting="--set workload.command.size=")

    def inputs(self) -> Mapping[str, Path]:
        """The files that are carried into the guest."""
        return {f"carry.{n}": path for n, path in enumerate(self.carry)}

    def with_files(self, files: Mapping[str, Path]) -> Self:
        """Its settings with these files, in the same order."""
        return replace(self, carry=tuple(files[name] for name in self.inputs()))

    def unseeded(self) -> tuple[str, ...]:
        """A sentence if the command does not name ``$SEED``; whether it uses the variable is not known here."""
        if "SEED" in self.line + self.setup:
            return ()
        return ("the command does not name $SEED, so it may draw other numbers in every run",)

    def doubts(self) -> Iterator[tuple[str, str]]:
        """Yield a program that is a file on this host and that the guest does not have, or not under this name."""
        word = self.line.split()[0]
        try:
            is_here = not word.startswith(_OF_GUESTS) and Path(word).is_file()
        except (OSError, ValueError):  # a word that cannot be a path
            is_here = False
        if not is_here:
            return
        name = Path(word).name
        if name not in (path.name for path in self.carry):
            yield f"the guest has no {word}, unless it is carried in, or made by --setup", f"--carry {word}"
        if "/" in word:
            yield f"the guest finds what is carried in as {name}, and not as {word}", f"--command '{name} …'"

    def problems(self) -> Iterator[Problem]:
        """Yield a missing or overlong command, and files that would have the same name in the guest."""
        if not self.line.strip():
            yield Problem(("workload.command.line",), "the workload command runs no command", "--command COMMAND")
        if len(self.line) > _LONGEST:
            yield Problem(("workload.command.line",), "it is too long", "--carry a script, and run that")
        names = [path.name for path in self.carry]
        if twice := next((name for name in names if names.count(name) > 1), None):
            yield Problem(("workload.command.carry",), f"two files are called {twice}", "give one another name")

    def problems_on_stack(self, device_runs: int, *, built_image: bool) -> Iterator[Problem]:
        """Yield a command that does not name ``$DEVICE`` on a device or, for several runs there, ``$OFFSET``."""
        text, keys = self.line + self.setup, ("workload.command.line", "storage.stack")
        if device_runs and "DEVICE" not in text:
            sentence = "the stack has no file system, and the command does not name $DEVICE, which is the block device"
            yield Problem(keys, sentence, "--stack …+ext4, or a command that works on $DEVICE")
        elif device_runs > 1 and "OFFSET" not in text:
            sentence = f"it does not name $OFFSET, where each of the stack's {device_runs} runs has its own place"
            yield Problem(keys, sentence, "it has workload.command.size bytes from there on")

    def run(self, site: RunSite) -> Run:
        """Carry the files in, set up, repeat the command; raises as :mod:`bisector.workload.repetitions` says."""
        deadline = Deadline(f"the end of the {run_words(site.name)}", site.deadline_s)
        directory = f"{_ASIDE if site.stack.device else site.stack.mountpoint}/{site.name}"
        repetitions.prepare(site, deadline)
        if self.carry:
            repetitions.carry(site, {path.name: path for path in self.carry}, deadline)
        run_steps(site.shell, (Step(f"mkdir -p {directory}", kernel_fault_in_run),), deadline.remaining_s)
        seed = {} if site.seed is None else {"SEED": f"{site.seed}"}
        device = {"DEVICE": site.stack.device, "OFFSET": f"{site.offset_bytes}"} if site.stack.device else {}
        variables = {"DIRECTORY": directory, "CARRIED": repetitions.CARRIED, "RUN": site.name, **device, **seed}
        if self.setup:
            kept = repetitions.GuestState.KEPT
            setup = "the setup of the command", self.setup, directory, 1, kept, variables
            repetitions.repeat(site, repetitions.Repeated(*setup, prepares=True), deadline)
        measured = repetitions.Repeated("the command", self.line, directory, self.runs, self.state, variables)
        ran, done = repetitions.repeat(site, measured, deadline)
        matches = matched_apart(site.locally, site.logs)

        def read(one: repetitions.Repetition) -> dict[str, float]:
            return {figure.metric: figure.value(one.output, matches) for figure in self.figures}

        return ran.run(values=repetitions.figures(ran, done, read, "the command"))
