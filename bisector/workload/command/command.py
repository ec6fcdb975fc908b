"""Any command as a workload: it runs on the stack, several times, and is judged by its time or by what it prints."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bisector.core import kinds
from bisector.core.deadline import Deadline
from bisector.core.figures import Run, run_words
from bisector.core.kinds import Option, Problem
from bisector.core.objective import Objective
from bisector.core.shell import Step, run_steps
from bisector.core.units import size_text
from bisector.storage.layer import Files
from bisector.workload.base import Deciding, Own, RunSite, Workload
from bisector.workload.command.figures import EXAMPLE, figures_kind, matched_apart, metric_called
from bisector.workload.repetitions import (
    CARRIED,
    MOST_REPETITIONS,
    SHARED,
    Carried,
    Repeated,
    Repetition,
    State,
    carry,
    figures,
    kernel_fault,
    prepare,
    repeat,
)

_LONGEST = 10_000
_OF_GUESTS = ("/bin/", "/sbin/", "/usr/")  # programs that a guest may have itself
_ASIDE = "/var/tmp/bisector-run"  # noqa: S108 -- the guest's own, where a stack without a file system has no directory


class Command(Workload):
    """A command of a person's own, with the files that it needs."""

    name = "command"
    chosen_by = "workload.command.line"
    shared = SHARED
    # fmt: off
    options = (
        Option("workload.command.line", "line", kinds.text("a command line for sh", empty=True), "",
               "command that is measured, in a directory of the stack; chooses the workload command",
               flag="--command", metavar="COMMAND"),
        Option("workload.command.carry", "carry", kinds.files(), (),
               "file that is carried into the guest; the command finds it in $CARRIED, and a program in its path",
               flag="--carry", metavar="FILE", repeat=True),
        Option("workload.command.setup", "setup", kinds.text("a command line for sh", empty=True), "",
               "command that runs once before, in the same directory, and is not measured",
               flag="--setup", metavar="COMMAND"),
        Option("workload.command.figures", "figures", figures_kind(), (),
               "figure that the command prints, as NAME=UNIT,higher or lower: a line NAME=VALUE; with ,json:PATH or "
               ",regex:EXPRESSION behind it found so; its metric is custom:NAME, and the first one decides",
               flag="--figure", metavar=EXAMPLE, repeat=True),
        Option("workload.command.runs", "runs", kinds.integer(1), 3,
               "how often a run repeats the command; the median counts", 5),
        Option("workload.command.page_cache", "state", kinds.choice(State), "dropped",
               "page cache before each repetition: dropped, filled by one more that does not count, or kept as it is"),
        Option("workload.command.size", "size_bytes", kinds.size(0), 0,
               "how much a run writes to the stack, bytes: to check that it fits, and fills a cache"),
    )
    # fmt: on

    def label(self, own: Own) -> str:
        """The command itself."""
        line: str = own["line"]
        return line

    def recipe(self, own: Own) -> str:
        """The command, and what comes before it."""
        setup = f"{own['setup']}   # once, not measured\n" if own["setup"] else ""
        return f"{setup}{own['line']}   # {own['runs']} times, page cache {own['state']}\n"

    def deciding(self, own: Own) -> Deciding:
        """The first figure that it prints; without one how long it takes."""
        if own["figures"]:
            return Deciding(Objective(own["figures"][0].metric), "first --figure")
        return Deciding(Objective("elapsed"), "workload command")

    def names(self, own: Own) -> tuple[str, ...]:
        """What it takes, and what it prints."""
        return (*super().names(own), *(one.metric for one in own["figures"]))

    def full_name(self, own: Own, name: str) -> str:
        """With unit and better side as the figure of the settings has them."""
        return metric_called(own["figures"], name) or super().full_name(own, name)

    def files(self, own: Own) -> Files:
        """As much as a person says."""
        size = own["size_bytes"]
        sentence = f"workload.command.size is {size_text(size)}"
        return Files(size, sentence, 0, ("workload.command.size",), setting="--set workload.command.size=")

    def inputs(self, own: Own) -> Mapping[str, Path]:
        """Each file that is carried in."""
        return {f"carry.{n}": path for n, path in enumerate(own["carry"])}

    def with_files(self, own: Own, files: Mapping[str, Path]) -> Own:
        """The same order, other places."""
        return {**own, "carry": tuple(files[name] for name in self.inputs(own))}

    def unseeded(self, own: Own) -> tuple[str, ...]:
        """Whether it reads the variable nobody knows from here."""
        if "SEED" in own["line"] + own["setup"]:
            return ()
        return ("the command does not name $SEED, so it may draw other numbers in every run",)

    def doubts(self, own: Own) -> Iterator[tuple[str, str]]:
        """A program that is a file here, and that the guest has not, or not under this name."""
        word = own["line"].split()[0]
        if word.startswith(_OF_GUESTS) or not _is_file(word):
            return
        name = Path(word).name
        if name not in (path.name for path in own["carry"]):
            yield f"the guest has no {word}, unless it is carried in, or made by --setup", f"--carry {word}"
        if "/" in word:
            yield f"the guest finds what is carried in as {name}, and not as {word}", f"--command '{name} …'"

    def problems(self, own: Own) -> Iterator[Problem]:
        """No command, files that cannot be told apart in the guest."""
        if not own["line"].strip():
            yield Problem(("workload.command.line",), "the workload command runs no command", "--command COMMAND")
        if len(own["line"]) > _LONGEST:
            yield Problem(("workload.command.line",), "it is too long", "--carry a script, and run that")
        if own["runs"] > MOST_REPETITIONS:
            yield Problem(("workload.command.runs",), f"at most {MOST_REPETITIONS:,} repetitions are measured")
        names = [path.name for path in own["carry"]]
        if twice := next((name for name in names if names.count(name) > 1), None):
            yield Problem(("workload.command.carry",), f"two files are called {twice}", "give one another name")

    def problems_on_device(self, own: Own, runs: int) -> Iterator[Problem]:
        """It has to say where on the device it reads and writes, and for several runs each in a place of its own."""
        text, keys = own["line"] + own["setup"], ("workload.command.line", "storage.stack")
        if "DEVICE" not in text:
            sentence = "the stack has no file system, and the command does not name $DEVICE, which is the block device"
            yield Problem(keys, sentence, "--stack …+ext4, or a command that works on $DEVICE")
        elif runs > 1 and "OFFSET" not in text:
            sentence = f"the command does not name $OFFSET, where each of the stack's {runs} runs has its own place"
            yield Problem(keys, sentence, "it has workload.command.size bytes from there on")

    def run(self, own: Own, site: RunSite) -> Run:
        """Carry the files in, set up, repeat; see :mod:`bisector.workload.repetitions` for what is raised."""
        deadline = Deadline(f"the end of the {run_words(site.name)}", site.deadline_s)
        directory = f"{_ASIDE if site.stack.device else site.stack.mountpoint}/{site.name}"
        prepare(site, deadline)
        if own["carry"]:
            carry(site, (Carried(path, f"{CARRIED}/{path.name}") for path in own["carry"]), deadline)
        run_steps(site.shell, (Step(f"mkdir -p {directory}", kernel_fault),), deadline.remaining_s)
        seed = {} if site.seed is None else {"SEED": f"{site.seed}"}
        device = {"DEVICE": site.stack.device, "OFFSET": f"{site.offset_bytes}"} if site.stack.device else {}
        variables = {"DIRECTORY": directory, "CARRIED": CARRIED, "RUN": site.name, **device, **seed}
        if own["setup"]:
            once = Repeated(
                "the setup of the command", own["setup"], directory, 1, State.KEPT, variables, "setup", prepares=True
            )
            repeat(site, once, deadline)
        measured = Repeated("the command", own["line"], directory, own["runs"], own["state"], variables)
        ran, done = repeat(site, measured, deadline)

        matches = matched_apart(site.locally, site.logs)

        def read(one: Repetition) -> dict[str, float]:
            return {figure.metric: figure.value(one.output, matches) for figure in own["figures"]}

        return ran.run(values=figures(ran, done, read, "the command"))


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    except (OSError, ValueError):  # a word that can be no path
        return False


COMMAND = Command()
