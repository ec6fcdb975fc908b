"""What the log of a parallel make tells: its first real error, in one line, and who is to blame."""

import os.path
import re
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 12
_LINE_CHARACTERS = 300

# Best first: in the output of a parallel make, what the compiler said of the source comes anywhere
# before or after the lines in which each make reports that something below it failed.
_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\S[^:]*:\d+(:\d+)?: (fatal |internal compiler )?error: ",  # gcc, clang
        r"^\S[^:]*:\d+: Error: ",  # the assembler
        r"^\S*Kconfig\S*:\d+: ?(?!warning)\w",  # scripts/kconfig/conf
        r"undefined reference to |multiple definition of ",  # the linker, of a symbol
        r"^\S*ld(\.\w+)?: (?!.*warning:)",  # the linker, of anything else
        r"^(ERROR|FATAL|error): |: (fatal |internal compiler )?error: ",  # modpost, objtool, cc1
        r"\*\*\* (?!\[|Waiting for|Deleting file)",  # Makefile:12: *** what the Makefile says. Stop.
        r"\*\*\* \[",  # make[2]: *** [file:line: target] Error 1
    )
)
# "  CC      fs/readdir.o": what other jobs of a parallel make do meanwhile (scripts/Kbuild.include, quiet_cmd).
_PROGRESS = re.compile(r"^  [A-Z][A-Z0-9_]* +(\[M\] +)?\S+$")

# A diagnosis of the source itself, by the compiler, the assembler or scripts/kconfig/conf, in a file of the tree.
# Not "fatal error": that is a header which this host lacks, or gcc's own end.
_DIAGNOSIS = re.compile(
    r"(?!/)[^\s:]+:\d+(:\d+)?: (error|Error): |(?!/)(\S*/)?Kconfig(?!\.include)[\w.]*:\d+: ?(?!warning)\w"
)
# What make says of a recipe; a make that has failed below it is told as Error 2.
_MAKE = re.compile(r"make(\[\d+\])?: \*\*\* ")
_MAKE_GOES_ON = re.compile(r"Waiting for unfinished jobs|Deleting file |\[.*\] Error 2$")
# Host programs and gcc's plugins are made with this host's headers and libraries, which no key of a kernel names.
_KERNELS_OWN = re.compile(
    r"\[(?!.*(Makefile\.(host|userprogs)|\btools/|scripts/gcc-plugins))"
    r"[^:]+:\d+: (?!scripts/|certs/|usr/)\S+(\.(o|s|lds)|config)\] Error 1$"
)
_CCACHE_ERROR = re.compile(r"^ccache: error: .*", re.MULTILINE)
# make's and gcc's words for SIGKILL and SIGTERM, strsignal(3), or the shell's exit status 128 + n.
_ENDED = re.compile(
    r"^make(\[\d+\])?: \*\*\* \[.*\] (Killed|Terminated|Error 137|Error 143)$"
    r"|^.*\b(Killed|Terminated) signal terminated program .*$",
    re.MULTILINE,
)
# What compilers, make and shells say when memory, disk, time or the build directory is at fault.
_NOT_THE_SOURCES = re.compile(
    r"internal compiler error|confused by earlier errors|fatal error|\bsignal\b.*\bterminated|core dumped"
    r"|\bkilled\b|\bterminated\b|\baborted\b|segmentation fault|bus error|illegal instruction|\bccache: "
    r"|no space left|quota exceeded|memory exhausted|out of memory|cannot allocate|bad_alloc|input/output error"
    r"|read-only file system|stale file handle|needs cleaning|too many open files|temporarily unavailable"
    r"|permission denied|not permitted|text file busy|no such file|not found|clock skew|in the future"
    r"|truncated|not recognized|malformed|interrupted",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class BuildError:
    """The line that names the error and the lines from it on."""

    reason: str
    tail: tuple[str, ...]


def size_bytes(log: Path) -> int:
    """How much has been written so far; 0 for a log that nobody has begun."""
    return log.stat().st_size if log.exists() else 0


def lines_since(log: Path, offset: int) -> tuple[str, ...]:
    """What was written after a size of :func:`size_bytes`."""
    if not log.exists():
        return ()
    with log.open("rb") as file:
        file.seek(offset)
        return tuple(file.read().decode(errors="replace").splitlines())


def first_error(output: str, source: Path, build: Path) -> BuildError:
    """The best error line of make's output, with paths relative to the source tree."""
    lines = [_relative(line.rstrip(), source, build) for line in output.splitlines() if _says_something(line)]
    for pattern in _ERRORS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return BuildError(line.strip(), tuple(lines[number : number + _TAIL_LINES]))
    return BuildError(lines[-1].strip() if lines else "make failed and said nothing", tuple(lines[-_TAIL_LINES:]))


def surely_of_the_source(output: str, source: Path, build: Path) -> bool:
    """Whether make's output proves that this source fails with this compiler on any host, at any time.

    Every recipe that failed is one that compiles kernel code, the compiler (or Kconfig) named a line of the
    tree, and nothing that the host might have to do with is mentioned anywhere. When in doubt, no.
    """
    lines = [_relative(line.rstrip(), source, build) for line in output.splitlines() if _says_something(line)]
    said_by_make = [line[match.end() :] for line in lines if (match := _MAKE.match(line))]
    failed = [words for words in said_by_make if not _MAKE_GOES_ON.match(words)]
    return (
        bool(failed)
        and all(_KERNELS_OWN.match(words) for words in failed)
        and any(_DIAGNOSIS.match(line) for line in lines)
        and not _NOT_THE_SOURCES.search(output)
    )


def ended_from_outside(output: str) -> str | None:
    """The line that says that somebody killed a command of the build; a compiler's own crash is not meant."""
    found = _ENDED.search(output)
    return found[0] if found else None


def ccache_error(output: str) -> str | None:
    """The line in which ccache reports a failure of its own: of its directory, disk or memory, never of a source."""
    found = _CCACHE_ERROR.search(output)
    return found[0] if found else None


def _says_something(line: str) -> bool:
    return bool(line.strip()) and _PROGRESS.match(line) is None


def _relative(line: str, source: Path, build: Path) -> str:
    """Without the source tree's path, as an absolute one or as ccache rewrites it, relative to the build."""
    for prefix in (f"{source}/", f"{os.path.relpath(source, build)}/"):
        line = line.replace(prefix, "")
    return line[:_LINE_CHARACTERS]
