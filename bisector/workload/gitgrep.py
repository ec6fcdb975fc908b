"""``git grep`` in a clone on the stack, with cold caches: it reads many small files, most of them once.

The guest has no network: the clone is carried in as a git bundle (git-bundle(1)) that is made on the host before the
first trial. It has one commit, with the files of one tree, so every trial reads the same, whatever the history is.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bisector.core.deadline import Deadline
from bisector.core.errors import BisectorError, UserError
from bisector.core.figures import Run, run_words
from bisector.core.objective import Objective
from bisector.core.setting import Line, Meta, Option, Size
from bisector.core.shell import CommandResult, Step, run_steps
from bisector.core.units import size_text
from bisector.storage.disks import kernel_fault_in_run
from bisector.storage.layer import Files
from bisector.workload import repetitions
from bisector.workload.base import Clone, DefaultObjective, Locally, RunSite, Workload
from bisector.workload.repetitions import Repetition, Unusable

_BUNDLE = "clone.bundle"
_SUM = re.compile(r"\d{1,10} (?P<bytes>\d{1,19})\n", re.ASCII)  # cksum(1): checksum and length of git's output
_QUOTED = 60


@dataclass(frozen=True, slots=True)
class GitGrep(Workload):
    """A search through the files of a clone."""

    name = "gitgrep"
    chosen_by = "workload.gitgrep.pattern"
    shared = repetitions.SHARED

    # The settings, laid out as a table.
    # fmt: off
    pattern: Annotated[Line, Meta(description="a basic regular expression"), Option(
        "workload.gitgrep.pattern", "EXPORT_SYMBOL_GPL", "pattern that git grep looks for",
        flag="--grep", metavar="PATTERN")]
    repository: Annotated[Path | None, Option(
        "workload.gitgrep.repository", "", "git repository that the clone is made of", absent=("", "that under test"))]
    commit: Annotated[Line, Meta(description="a revision"), Option(
        "workload.gitgrep.commit", "HEAD", "commit whose files are in the clone, whatever commits are measured")]
    path: Annotated[str, Meta(description="a directory of the tree"), Option(
        "workload.gitgrep.path", "fs", "directory of that commit which the clone is of; empty for all of it", "")]
    size_bytes: Annotated[Size, Meta(ge=1 << 20), Option(
        "workload.gitgrep.size", "128MiB", "most that the clone may have, with its files checked out, bytes", "4GiB")]
    runs: Annotated[repetitions.Repetitions, Option(
        "workload.gitgrep.runs", 5, "how often a run repeats the search; the median counts")]
    bundle: Annotated[Path | None, Option(
        "workload.gitgrep.bundle", "", "the clone, as a git bundle with a HEAD, for a host without the repository",
        absent=("", "one is made"))]
    # fmt: on

    def label(self) -> str:
        """The pattern, and the tree that is searched, in git's notation."""
        return f"{self.pattern} in {self.commit}:{self.path}"

    def recipe(self) -> str:
        """The commands that a user would type."""
        tree = f"{self.commit}:{self.path}"
        grep = f"git grep -e {shlex.quote(self.pattern)}"
        return f"# {self.runs} times, in a clone of {tree}\nsync; echo 3 >/proc/sys/vm/drop_caches\ntime {grep}\n"

    def deciding(self) -> DefaultObjective:
        """How long the search takes."""
        return DefaultObjective(Objective("elapsed"), "workload gitgrep")

    def files(self) -> Files:
        """What one run writes: the largest clone that is allowed."""
        size = self.size_bytes
        return Files(size, f"a clone may have {size_text(size)}", 0, ("workload.gitgrep.size",))

    def inputs(self) -> Mapping[str, Path]:
        """The clone, once it is made."""
        return {} if self.bundle is None else {"bundle": self.bundle}

    def clone(self) -> Clone | None:
        """The clone that is made before the first trial; None if the settings name one."""
        if self.bundle is not None:
            return None
        return Clone("bundle", self.repository, self.commit, self.path.strip("/"), self.size_bytes)

    def check(self, objective: Objective, locally: Locally) -> None:
        """Check also, if this host has git, that the user's bundle is one and has a HEAD."""
        Workload.check(self, objective, locally)
        if self.bundle is None:
            return
        listed = locally(("git", "bundle", "list-heads", os.fspath(self.bundle)), {})
        if listed is None:
            return
        if listed.exit_status != 0:
            said = listed.stderr.strip().partition("\n")[0]
            what = f"workload.gitgrep.bundle: {self.bundle} is not a git bundle: {said}"
            raise UserError(what, "git bundle create FILE HEAD makes one")
        if not any(line.split()[1:] == ["HEAD"] for line in listed.stdout.splitlines()):
            what = f"workload.gitgrep.bundle: {self.bundle} has no HEAD, so a clone of it has no files"
            raise UserError(what, "git bundle create FILE HEAD makes one that has")

    def run(self, site: RunSite) -> Run:
        """Unpack the clone onto the stack, then search; raises as :mod:`bisector.workload.repetitions` says."""
        if self.bundle is None:
            raise UserError("no clone was made for gitgrep", "name one with workload.gitgrep.bundle")
        deadline = Deadline(f"the end of the {run_words(site.name)}", site.deadline_s)
        directory, bundle = f"{site.stack.mountpoint}/{site.name}", f"{repetitions.CARRIED}/{_BUNDLE}"

        def no_clone(failed: CommandResult) -> BisectorError:
            if "No space left" not in failed.stderr:
                return kernel_fault_in_run(failed)
            hint = f"make the disk larger ({site.stack.room}), or the clone smaller"
            return UserError("the clone does not fit on the stack", hint)

        repetitions.prepare(site, deadline, "git")
        repetitions.carry(site, {_BUNDLE: self.bundle}, deadline)
        steps = (
            Step(f"mkdir -p {directory}", kernel_fault_in_run),
            Step(f"git clone -q {bundle} {directory}/clone", no_clone),
            Step(f"rm {bundle} && sync", kernel_fault_in_run),
        )
        run_steps(site.shell, steps, deadline.remaining_s)
        # The guest has no pager and no configuration of the user. git exits with 1 if no line matches.
        grep = f"git --no-pager grep -e {shlex.quote(self.pattern)}"
        status = f"{repetitions.OUTPUTS}/grep"
        command = f'{{ {grep}; echo $? >{status}; }} | cksum; read -r s <{status}; [ "$s" -le 1 ]'
        searched = repetitions.Repeated("git grep", command, f"{directory}/clone", self.runs)
        ran, done = repetitions.repeat(site, searched, deadline)

        def check(one: Repetition) -> dict[str, float]:
            """Check that each repetition finds the same lines, and at least one; it has no figure but its time."""
            if (found := _SUM.fullmatch(one.output)) is None:
                raise Unusable(f"cksum printed {one.output[:_QUOTED]!r}")
            if not int(found["bytes"]):
                raise Unusable(f"it found no line with {self.pattern!r}", "workload.gitgrep.pattern = another one")
            if one.output != (first := done[0].output):
                raise Unusable(f"it found other lines: {one.output.strip()} and not {first.strip()} (cksum)")
            return {}

        return ran.run(values=repetitions.figures(ran, done, check, "git grep"))
