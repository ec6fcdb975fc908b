"""A guest that answers as told: each step of a script is a row, the rest is done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bisector.core.shell import CommandResult


@dataclass(frozen=True)
class Answer:
    """What a command prints and ends with.

    A guest with a clock takes ``takes_s`` for it, has these ``files`` afterwards (None is a directory), or is befallen
    by a ``trouble`` of tests/vm/fake_guest.py instead of answering.
    """

    stdout: str = ""
    stderr: str = ""
    exit_status: int = 0
    takes_s: float = 0.0
    files: Mapping[str, str | None] = field(default_factory=dict)
    trouble: str | None = None

    @property
    def lines(self) -> list[str]:
        return self.stderr.splitlines()

    @staticmethod
    def joined(command: str, answers: "Sequence[Answer]") -> CommandResult:
        """What is seen of a command that consists of these steps."""
        if "@step" not in command:
            (answer,) = answers
            return CommandResult(command, answer.exit_status, answer.stdout, answer.stderr)
        stdout, stderr = (
            "".join(f"\n@step {n}\n{text}" for n, text in enumerate(texts))
            for texts in ([one.stdout for one in answers], [one.stderr for one in answers])
        )
        return CommandResult(command, answers[-1].exit_status, stdout, stderr)


@dataclass
class FakeShell:
    """Answers by the first row whose key is in a command; scripts of steps are taken apart."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    sent: dict[str, bytes] = field(default_factory=dict)

    def run(self, command: str, deadline_s: float = 60.0) -> CommandResult:
        return self._perform(command, lambda line: None)

    def stream(self, command: str, on_line: Callable[[str], None], deadline_s: float) -> CommandResult:
        return self._perform(command, on_line)

    def _perform(self, command: str, on_line: Callable[[str], None]) -> CommandResult:
        answers: list[Answer] = []
        for step in steps_of(command):
            self.commands.append(step)
            answers.append(answer_of(self.answers, step))
            for line in answers[-1].lines:
                on_line(line)
            if answers[-1].exit_status:
                break
        return Answer.joined(command, answers)

    def put(self, text: str, remote: str) -> None:
        self.written[remote] = text

    def send(self, local: Path, remote: str) -> None:
        self.sent[remote] = local.read_bytes()

    def get(self, remote: str, local: Path) -> None:
        local.write_text(self.files[Path(remote).name], encoding="utf-8")


# What a sound guest says of the ext4 file system that it was told to make.
EXT4 = {
    "mountinfo": Answer("36 24 254:32 / /mnt rw,relatime - ext4 /dev/vdc rw\n"),
    "/proc/fs/ext4/": Answer(
        "rw\nbsddf\nuser_xattr\nerrors=continue\ncommit=5\nmin_batch_time=0\nmax_batch_time=15000\nstripe=0\n"
        "data=ordered\ninode_readahead_blks=32\nbarrier\nauto_da_alloc\ndioread_nolock\nmax_dir_size_kb=0\n"
        "nodiscard\ndelalloc\nnojournal_checksum\nnoinit_itable\n"
    ),
    "dumpe2fs": Answer(
        "Filesystem features:      has_journal ext_attr resize_inode dir_index filetype needs_recovery extent 64bit "
        "flex_bg sparse_super large_file huge_file dir_nlink extra_isize metadata_csum\n"
        "Inode count:              65536\nBlock count:              262144\nReserved block count:     13107\n"
        "Block size:               4096\nInode size:\t          256\n"
    ),
}


def answer_of(answers: Mapping[str, Answer], command: str) -> Answer:
    """The first whose key is in the command; what no row is about is done as it should be."""
    return next((answer for key, answer in (*answers.items(), *EXT4.items()) if key in command), Answer())


def steps_of(command: str) -> list[str]:
    """The commands of a script of steps, or the command itself."""
    if "@step" not in command:
        return [command]
    parts = command.split("\n{ ")[1:]
    return [part.split("\n} || exit $?")[0] for part in parts]
