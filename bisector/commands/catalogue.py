"""Which commands there are: what each is for, and the module that has it, so that only that one is imported."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, the module of this room that registers it, and its sentence in help."""

    name: str
    module: str
    sentence: str


# In the order in which a person meets them.
GROUPS: Mapping[str, tuple[Entry, ...]] = {
    "a bisection": (
        Entry("start", "measure", "build, boot and measure the kernels of a range until the commit is found"),
        Entry("resume", "measure", "go on with a run; nothing is measured twice"),
        Entry("next-step", "measure", "bisect the second change that a run's readings show"),
        Entry("runs", "runs", "list the runs, with their answers"),
        Entry("status", "show", "show where a run stands, in one paragraph or as JSON"),
        Entry("table", "show", "show the table of trials and verdicts"),
        Entry("log", "show", "print git's bisect log of a run"),
        Entry("report", "report", "print the full report of a run: text, mail, markdown, json or html"),
        Entry("plot", "report", "draw a run: IOPS over time, figures by commit"),
        Entry("mail", "report", "draft a letter with the report; --send sends it"),
        Entry("baselines", "measure", "measure each disk of a run's stack alone"),
        Entry("import", "importing", "import fio results that others measured, by an index or one by one"),
        Entry("reset", "upkeep", "end a run, and remove its worktrees, references, guests, disks and build"),
    ),
    "a comparison": (
        Entry("compare", "compare", "measure kernels on storage stacks and workloads, and tell how they differ"),
    ),
    "every night": (
        Entry("nightly", "nightly", "measure the tips of branches, and bisect what changed"),
        Entry("history", "nightly", "show what the nights measured"),
    ),
    "beforehand": (
        Entry("plan", "plan", "estimate a bisection or comparison on this machine: trials, hours, confidence"),
        Entry("simulate", "simulate", "search simulated histories many times, to see how often the answer is right"),
    ),
    "a single commit": (
        Entry("test", "measure", "measure one commit"),
        Entry("kernel", "kernel", "make the .config or the kernel of a commit, without measuring"),
    ),
    "this machine": (
        Entry("doctor", "doctor", "check what this machine lacks, and print the commands that fix it"),
        Entry("settings", "settings", "print the effective settings, and where each comes from"),
        Entry("image", "upkeep", "build the guest's root image"),
        Entry("cache", "upkeep", "list or clear the kernels and guest images that are kept for later runs"),
    ),
    "several hosts": (
        Entry("fleet", "fleet", "make a fleet's authority, add hosts to it, show what they do, drain and remove them"),
        Entry("worker", "worker", "measure on this host what a coordinator on another one asks for"),
    ),
}


@dataclass(frozen=True, slots=True)
class Brief:
    """What ``--help`` of a command with many flags shows: its arguments, and the flags that a person needs first."""

    usage: str
    flags: str


_OF_A_SEARCH = "stack ssd hdd job command metric runtime"
# By the words of the command.
FIRST_FLAGS: Mapping[str, Brief] = {
    "start": Brief("OLD NEW [-- PATH…]", f"{_OF_A_SEARCH} budget skip config set run-dir"),
    "plan": Brief("OLD NEW [-- PATH…]", f"{_OF_A_SEARCH} budget hosts calibrate config set json"),
    "compare": Brief("SUBJECT…", "stack job command metric runs budget patch parameter plan config set run-dir"),
    "test": Brief("COMMIT", f"{_OF_A_SEARCH} threshold config set json run-dir"),
    "kernel config": Brief("COMMIT", "base-config fragment compiler stack config set repo output"),
    "kernel build": Brief("COMMIT", "base-config fragment compiler stack jobs config set repo output json run-dir"),
    "doctor": Brief("", f"{_OF_A_SEARCH} base-config hosts config set json run-dir"),
    "import": Brief("[FILE…]", "index only-set verdicts commit kernel run verdict old new threshold repo run-dir"),
    "settings": Brief("[KEY…]", f"{_OF_A_SEARCH} profile config set changed toml"),
    "simulate": Brief(
        "(--range OLD NEW | --graph FILE)", "repo strategy flip skip sticky effect spread budget hosts trials seed json"
    ),
}


def entries() -> Iterator[Entry]:
    """Every command once."""
    for group in GROUPS.values():
        yield from group


def sentence(name: str) -> str:
    """What a command does, as a sentence."""
    (line,) = (entry.sentence for entry in entries() if entry.name == name)
    return f"{line[0].upper()}{line[1:]}."
