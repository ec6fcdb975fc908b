"""``kernel config`` and ``kernel build``: the configuration of a commit, or its kernel, without measuring anything."""

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from bisector.campaign.life import remove_build
from bisector.commands.arguments import Verbs, add_group, add_run_dir, add_settings, add_verb, effective, write_json
from bisector.commands.output import note, save, write_document, write_rows, writing
from bisector.core import resources
from bisector.core.errors import UserError
from bisector.core.json_document import ABSENT, FLAT, Absent, JsonObject
from bisector.core.printable import clean
from bisector.core.subject import Commit, Kernel
from bisector.core.trial import KernelFault
from bisector.doctor import checks
from bisector.executor.local import end_leftovers, kernel_builder
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.host import locks, process
from bisector.kernel import kconfig
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.store.rundir import RunDirectory, single_commit_directory

_EXAMPLES = """\
examples:
  bisector kernel config v6.1 > v6.1.config  what becomes of the configuration in a commit's tree
  bisector kernel build v6.1 -o out          image, .config and modules
"""
_CONFIG_EXAMPLES = """\
examples:
  bisector kernel config v6.1 > v6.1.config
  bisector kernel config HEAD --base-config /boot/config-6.1.0-18-amd64 -o debian.config
exit codes: 0 done; 3 the commit's Kconfig files fail; others as in `bisector --help`
"""
_BUILD_EXAMPLES = """\
examples:
  bisector kernel build v6.1                 into the cache that all runs share
  bisector kernel build HEAD -o out --fragment debug
exit codes: 0 built, or found in the cache; 3 the commit does not build; others as in
`bisector --help`
"""
_DOES_NOT_BUILD = 3
# What a configuration depends on; a storage stack brings kernel fragments, too.
_CONFIGURING = ("kernel.base_config", "kernel.fragments", "kernel.compiler", "kernel.sandbox", "storage.stack")


class KernelFiles(JsonObject, frozen=True, kw_only=True):
    """The files of a kernel: in the cache, or copies of them."""

    image: Annotated[str, "path of the image that boots"]
    config: Annotated[str, "path of the effective .config"]
    modules: Annotated[str | Absent, "path of a file system for /lib/modules; only of a kernel with modules"] = ABSENT


class KernelBuild(JsonObject, frozen=True, kw_only=True):
    """The output of ``bisector kernel build --json``."""

    commit: Annotated[Commit, FLAT]
    kernel: Annotated[Kernel, "the kernel"]
    files: Annotated[KernelFiles, "its files, copied with `-o`"]


def add(verbs: Verbs) -> None:
    """Register ``kernel config`` and ``kernel build``."""
    parts = add_group(verbs, "kernel", _EXAMPLES)
    what = "print the effective .config of a commit, and which options were not obtained"
    config_ = add_verb(parts, "config", config, "commit repo", help_line=what, examples=_CONFIG_EXAMPLES)
    config_.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    what = "build the kernel of a commit, without booting it"
    build_ = add_verb(parts, "build", build, "commit repo json", help_line=what, examples=_BUILD_EXAMPLES)
    build_.add_argument("-o", "--output", type=Path, metavar="DIR", help="copy image, .config and modules to DIR")
    for verb, keys in ((config_, _CONFIGURING), (build_, (*_CONFIGURING, "kernel.jobs"))):
        add_run_dir(verb, "where to build (default: below $XDG_STATE_HOME, as for `bisector test`)")
        add_settings(verb, keys)


@dataclass(frozen=True, slots=True)
class _Site:
    """What a build works with; ``logs`` is the directory with the logs of the last build."""

    commit: Commit
    builder: KernelBuilder
    source: SourceTree
    run_dir: Path

    @property
    def logs(self) -> Path:
        return self.run_dir / "kernel"

    def places(self) -> BuildPlaces:
        """Check the sources out, and remove the logs of an earlier build."""
        shutil.rmtree(self.logs, ignore_errors=True)
        note(f"checking out {_named(self.commit)}")
        return BuildPlaces(self.source.checkout(self.commit), self.run_dir / "build", self.logs, self.run_dir)


@contextmanager
def _site(arguments: argparse.Namespace) -> Iterator[_Site]:
    """Lock the directory that ``bisector test`` works in, and remove sources and build afterwards."""
    settings = effective(arguments, arguments.commit).settings
    repository = Repository.open(arguments.repo)
    commit = repository.resolve(arguments.commit)
    repository.check_kernel_tree(commit)
    run = RunDirectory(Path.cwd() / (arguments.run_dir or single_commit_directory(repository.common_dir)))
    run.path.mkdir(parents=True, exist_ok=True)
    if run.database.exists():
        raise UserError(f"{run.path} holds trials, and this kernel is of none of them", "choose another --run-dir")
    with run.lock():
        checks.check_build(settings, run.path)
        process.reap(run.path)
        with locks.measuring(run.path, note, locks.TurnPurpose.BUILD), locks.using_caches(resources.cache_home()):
            end_leftovers(run.path, note)
            source = SourceTree(Repository.open(repository.top, run_marker=run.path), run.path)
            yield _Site(commit, kernel_builder(settings.kernel), source, run.path)
        remove_build(run.path, repository.top)


def config(arguments: argparse.Namespace) -> int:
    """Write the .config that a build of this commit would use."""
    with _site(arguments) as site:
        places = site.places()
        try:
            unmet = site.builder.configure(places)
        except KernelFault as fault:
            return _complain(site, fault)
        known = kconfig.symbols(places.source) if unmet else frozenset()
        text = (site.logs / "kernel.config").read_text(encoding="utf-8", errors="replace")
    if arguments.output is None:
        write_document(text)
    else:
        save(arguments.output, text.encode())
        note(f"written to {arguments.output}")
    obtained = kconfig.parse(text)
    for option in unmet:
        name, _, _ = option.partition("=")
        why = f"it is {obtained.get(name, kconfig.NOT_SET)}: because of what it depends on, or what selects it"
        note(f"not obtained: {option} ({why if name in known else 'there is no such option in this tree'})")
    return 0


def build(arguments: argparse.Namespace) -> int:
    """Build the kernel or find it in the cache, and describe it. A build that is known to fail is not tried again."""
    output: Path | None = arguments.output
    if output is not None:
        with writing(output):  # refuse an unusable directory now, not after an hour of building
            output.mkdir(parents=True, exist_ok=True)
    with _site(arguments) as site:
        tree = site.commit.tree
        kernel = site.builder.find(tree) or site.builder.find_alike(tree, site.source.trees)
        if kernel is None:
            try:
                site.logs.mkdir(parents=True, exist_ok=True)
                site.builder.recall_failure(tree, site.logs)
                places = site.places()
                note(f"building; the log is {site.logs / 'build.log'}")
                kernel = site.builder.build(tree, places)
            except KernelFault as fault:
                return _complain(site, fault)
        files = {"image": kernel.image, "config": kernel.config, "modules": kernel.modules}
        there = {name: path for name, path in files.items() if path is not None}
        if output is not None:
            names = {"config": ".config"}  # the usual name of this file
            with writing(output):
                there = {
                    name: Path(shutil.copyfile(path, output / names.get(name, path.name)))
                    for name, path in there.items()
                }
    if arguments.json:
        shown = KernelFiles(**{name: str(path) for name, path in there.items()})
        write_json(KernelBuild(commit=site.commit, kernel=kernel, files=shown))
        return 0
    rows = {
        "commit": _named(site.commit),
        "release": kernel.release,
        **{name: str(path) for name, path in there.items()},
        "compiler": kernel.toolchain,
        "quirks": ", ".join(kernel.quirks) or "none",
        "not obtained": ", ".join(kernel.unmet) or "nothing",
        "built in": "kept from before" if kernel.cached else f"{kernel.build_s:.1f} s",
    }
    write_rows(rows.items(), 14)
    return 0


def _complain(site: _Site, fault: KernelFault) -> int:
    note(f"{_named(site.commit)} does not build: {fault.reason}")
    for line in fault.tail[1:]:
        note(f"  {clean(line)}")
    note(f"  the log is {site.logs / 'build.log'}")
    return _DOES_NOT_BUILD


def _named(commit: Commit) -> str:
    return f'{commit.short} ("{clean(commit.subject)}")'
