"""The list of commands: each with its purpose and its module, so that only the module of the wanted one is imported."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its name, the module of this package that registers it, and the sentence that help shows."""

    name: str
    module: str
    sentence: str


# In the order in which a person comes across them.
GROUPS: Mapping[str, tuple[Verb, ...]] = {
    "a bisection": (
        Verb("start", "measure", "build, boot and measure the kernels of a range until the commit is found"),
        Verb("resume", "measure", "go on with a run; nothing is measured twice"),
        Verb("next-step", "measure", "bisect the second change that a run's readings show"),
        Verb("runs", "show", "list the runs, with their answers"),
        Verb("status", "show", "show where a run stands, in one paragraph or as JSON"),
        Verb("table", "show", "show the table of trials and verdicts"),
        Verb("log", "show", "print git's bisect log of a run"),
        Verb("report", "report", "print the full report of a run: text, mail, markdown, json or html"),
        Verb("plot", "report", "draw a run: IOPS over time, figures by commit"),
        Verb("mail", "report", "draft a letter with the report; --send sends it"),
        Verb("baselines", "measure", "measure each disk of a run's stack alone"),
        Verb("import", "importing", "import fio results that others measured, by an index or one by one"),
        Verb("reset", "upkeep", "end a run, and remove its worktrees, references, guests, disks and build"),
    ),
    "a comparison": (
        Verb("compare", "compare", "measure kernels on storage stacks and workloads, and tell how they differ"),
    ),
    "every night": (
        Verb("nightly", "nightly", "measure the tips of branches, and bisect what changed"),
        Verb("history", "nightly", "show what the nights measured"),
    ),
    "beforehand": (
        Verb("plan", "plan", "estimate a bisection or comparison on this machine: trials, hours, confidence"),
        Verb("simulate", "simulate", "search simulated histories many times, to see how often the answer is right"),
    ),
    "a single commit": (
        Verb("test", "measure", "measure one commit"),
        Verb("kernel", "kernel", "make the .config or the kernel of a commit, without measuring"),
    ),
    "this machine": (
        Verb("doctor", "doctor", "check what this machine lacks, and print the commands that fix it"),
        Verb("settings", "settings", "print the effective settings, and where each comes from"),
        Verb("image", "upkeep", "build the guest's root image"),
        Verb("cache", "upkeep", "list or clear the kernels and guest images that are kept for later runs"),
    ),
    "several hosts": (Verb("fleet", "fleet", "show what the hosts of hosts.toml do now, and their versions"),),
}


@dataclass(frozen=True, slots=True)
class Brief:
    """The short ``--help`` of a command with many flags: its arguments, and the flags that a person needs first."""

    usage: str
    flags: str


_OF_A_SEARCH = "stack ssd hdd job command metric runtime"
# The keys are the words of the command.
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


def entries() -> Iterator[Verb]:
    """Yield every command once."""
    for group in GROUPS.values():
        yield from group


def sentence(name: str) -> str:
    """The purpose of a command, as a sentence."""
    (line,) = (entry.sentence for entry in entries() if entry.name == name)
    return f"{line[0].upper()}{line[1:]}."
