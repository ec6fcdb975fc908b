"""Turn a checked-out source tree into a bootable image: configure, make, identify, keep.

The build directory is kept between commits, so make compiles again only what a commit changed. Whatever could make two
builds of one source differ (time, user, host, build number, the commit's name in the release) is pinned
(Documentation/kbuild/reproducible-builds.rst).
"""

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, Self

from bisector.config import KernelSettings
from bisector.core.deadline import Deadline
from bisector.core.errors import Grade, InfraError
from bisector.core.subject import Change, Compiler, Kernel, RebuildCheck
from bisector.core.trial import FaultKind, KernelFault, Stage
from bisector.host.files import discard, our_files, remove_tree
from bisector.kernel import builddir, kconfig, product, quirks, sources, toolchain
from bisector.kernel.builddir import BUILD_LOG, BuildPlaces, Make, blamed_on_make, remove_strays, surely_of_the_source
from bisector.kernel.cache import CONFIG, DEFCONFIG, BuildFailure, KernelCache
from bisector.kernel.product import Product
from bisector.kernel.quirks import QUIRKS

# Incremented when the computation of content_sha256 changes, since kept kernels' digests could then not be compared,
# and when the format of the cache's entries changes: two versions of bisector would remove each other's.
_CONTENT = 4

# In the build directory's state as long as everything there was made by builds that check others.
_REMADE_ALONE = "remade-alone"
# Also there: the key of the kernel for which the directory was last configured, and the digest of its .config.
_CONFIGURED = "configured"

# Limits for the search for a kept kernel with the same sources: trees in one question to git, and lists of files read.
_MOST_ASKED = 200
_MOST_COMPARED = 24

_PINNED_VARIABLES = {
    "ARCH": toolchain.HOST_ARCHITECTURE,
    "LOCALVERSION": "",
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "bisector",
    "KBUILD_BUILD_HOST": "bisector",
    "KBUILD_BUILD_VERSION": "1",
}


class TreeChanges(Protocol):
    """The builder's questions to git about trees, by their ids."""

    def changes(self, old: str, new: str) -> Sequence[Change] | None:
        """The files that differ; None if one of the trees is not in the repository."""

    def alike_at(self, tree: str, others: Sequence[str], paths: Sequence[str]) -> Sequence[str]:
        """Those of the other trees that are in the repository and equal to ``tree`` at these paths."""


class KernelBuilder:
    """Builds kernels of one configuration with one compiler; the configuration's files are read at construction.

    The constructor raises :class:`bisector.core.errors.UserError` for an unusable base .config or fragment.
    """

    def __init__(self, settings: KernelSettings, cache: KernelCache) -> None:
        self._settings = settings
        self._cache = cache
        self._chosen: Compiler | None = None
        base = settings.base_config
        self._base = None if base is None else kconfig.parse(kconfig.read_base(base))
        fragments = kconfig.read_fragments(settings.fragments)
        self._asked = kconfig.merge(fragment.options for fragment in fragments)
        self._optional = kconfig.optional(fragments)
        self._wanted = kconfig.merge((self._base or {}, self._asked))

    @property
    def wanted(self) -> kconfig.Options:
        """The options that are requested for every kernel."""
        return dict(self._wanted)

    def compilers(self) -> tuple[Compiler, ...]:
        """The compilers of the settings, or all installed ones if the settings name none; the first one is used.

        Raises :class:`bisector.core.errors.UserError` for a compiler that is not installed or does not work.
        """
        return tuple(map(toolchain.named, self._settings.compilers)) or toolchain.installed()

    def default_compilers(self) -> tuple[Compiler, ...]:
        """The requested compilers, or the host's default one: these build a commit that is in no range."""
        found = self.compilers()
        return found if self._settings.compilers else found[:1]

    def using(self, compiler: Compiler) -> Self:
        """The same builder with another one of :meth:`compilers`."""
        builder = copy.copy(self)
        builder._chosen = compiler
        builder.__dict__.pop("_family", None)
        return builder

    def with_settings(self, settings: KernelSettings) -> "KernelBuilder":
        """A builder with other settings, but the same cache and the same compiler."""
        if settings == self._settings:
            return self
        builder = KernelBuilder(settings, self._cache)
        return builder if self._chosen is None else builder.using(self._chosen)

    @property
    def _compiler(self) -> Compiler:
        if self._chosen is None:
            self._chosen = self.compilers()[0]
        return self._chosen

    def key(self, tree: str) -> str:
        """The cache key of the kernel of a git tree id, which names all that it is made from; needs no checkout."""
        return f"{self._family}{tree}"

    @cached_property
    def _family(self) -> str:
        """The common prefix of the keys of this builder's kernels.

        The tree and the table settle which quirks apply, so the digest of the table is enough; ccache changes no code.
        """
        made_from = {
            "defaults": "allnoconfig" if self._base is None else "olddefconfig",
            "options": list(self._wanted.items()),
            "toolchain": self._compiler.identity,
            "quirks": quirks.digest(QUIRKS),
            "variables": _PINNED_VARIABLES,
            "content": _CONTENT,
        }
        return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:32] + Kernel.KEY_SEPARATOR

    def find(self, tree: str) -> Kernel | None:
        """The kept kernel of a git tree id, or None."""
        return self._as_asked(self._cache.find(self.key(tree)))

    def find_again(self, kernel: Kernel) -> Kernel | None:
        """A measured kernel if it is still kept, even if the settings or the compiler have changed since; else None."""
        kept = self._cache.find(kernel.key)
        return self._as_asked(kept) if kept is not None and kept.content_sha256 == kernel.content_sha256 else None

    def kept_trees(self) -> frozenset[str]:
        """The git tree ids whose kernels are kept."""
        return frozenset(key.removeprefix(self._family) for key in self._cache.kernels(self._family))

    def find_alike(self, tree: str, trees: TreeChanges) -> Kernel | None:
        """A kept kernel that ``tree`` would give, too, because no file that its build read differs; or None."""
        kept = [key.removeprefix(self._family) for key in self._cache.keys(self._family)]
        near = trees.alike_at(tree, kept[:_MOST_ASKED], sources.ALIKE_AT)
        for other in near[:_MOST_COMPARED]:
            read = self._cache.sources(self.key(other))
            if read is not None and read.same(trees.changes(other, tree)):
                return self._as_asked(self._cache.find(self.key(other)))
        return None

    def _as_asked(self, kept: Kernel | None) -> Kernel | None:
        """The kept kernel with the options of today's request that its .config lacks.

        The recorded ones date from its build; the fragments may since have made other options optional.
        """
        if kept is None:
            return None
        with our_files(kept.config):
            obtained = kconfig.read_effective(kept.config)
        return replace(kept, unmet=self._unmet(obtained))

    def read_by(self, key: str) -> sources.Sources | None:
        """The files that the build of a kept kernel read, by its key; None if they are not known, or no longer kept."""
        return self._cache.sources(key)

    def configure(self, places: BuildPlaces) -> tuple[str, ...]:
        """Make the effective .config of the checked-out tree, ``kernel.config`` in the logs, without building anything.

        Returns the options that were requested and not obtained. Raises as :meth:`build` does.
        """
        with our_files(places.build):
            places = self._prepared(places)
            (places.state / _REMADE_ALONE).unlink(missing_ok=True)
            make, _ = self._made_ready(places, "kernel configuration")
            with blamed_on_make(places.build):
                obtained = self._configure(make)
            _short_config(make)
            return self._unmet(obtained)

    def recall_failure(self, tree: str, logs: Path) -> None:
        """Raise the known :class:`KernelFault` of a git tree id, if any, after copying its build log to ``logs``."""
        failure = self._cache.find_failure(self.key(tree))
        if failure is not None:
            shutil.copyfile(failure.log, logs / BUILD_LOG)
            raise KernelFault(*astuple(failure.fault))

    def build(self, tree: str, places: BuildPlaces, trees: TreeChanges | None = None) -> Kernel:
        """Build the checked-out tree in ``places.source`` and keep the result as the kernel of ``tree``.

        With ``trees`` the build directory is configured again only if a file that decides on the configuration has
        changed. A failure that only the source can have caused is kept, too; any other failure is raised only after a
        second attempt, but a time-out at once. Raises :class:`KernelFault` (stage config or build) if the source is to
        blame and :class:`InfraError` if the host is: no room, no memory, no make.
        """
        with our_files(places.build):
            places = self._prepared(places)
            (places.state / _REMADE_ALONE).unlink(missing_ok=True)
            make, applied = self._made_ready(places)
            made = self._made(tree, make, trees)
            short = _short_config(make)
            if unmet := self._unmet(made.obtained):
                (places.logs / "unmet.txt").write_text("".join(f"{line}\n" for line in unmet), encoding="utf-8")
            kernel = Kernel(
                image=places.build / product.IMAGE,
                config=places.build / product.CONFIG,
                release=made.release,
                build_id=made.build_id,
                content_sha256=made.content_sha256,
                key=self.key(tree),
                toolchain=self._compiler.identity,
                quirks=tuple(quirk.name for quirk in applied),
                unmet=unmet,
                cached=False,
                modules=made.modules,
                build_s=make.deadline.elapsed_s,
            )
        return self._cache.store(kernel, made.read, short)

    def check_by_rebuild(self, kernel: Kernel, places: BuildPlaces) -> RebuildCheck:
        """Build the checked-out tree without trusting any output of other builds; the result is not kept as a kernel.

        The build directory and ccache's directory are used by such builds alone. If the result differs from ``kernel``,
        these cached objects are removed, and everything is compiled again in an emptied directory. Success with ccache
        is recorded with the kernel (:meth:`recorded_rebuild_check`). Raises as :meth:`build` does.
        """
        if kernel.family != self._family.removesuffix(Kernel.KEY_SEPARATOR):
            return RebuildCheck(
                (), why_not="this bisector builds kernels in another way, or with another configuration"
            )
        contents = list[str]()
        with our_files(places.build):
            places = self._prepared(places)
            alone = places.state / _REMADE_ALONE
            for anew in (False, True):
                if anew or not alone.exists():
                    builddir.empty_build_directory(places, "a kernel that was measured is built once more")
                    alone.touch()
                make, _ = self._made_ready(places)
                environment = make.environment and self._ccache(places, anew=anew, checks=not anew)
                try:
                    contents.append(self._made_once(replace(make, environment=environment)).content_sha256)
                except KernelFault as fault:
                    self._require_tools()
                    if anew or not fault.kind.of_compiling:
                        raise
                if kernel.content_sha256 in contents:
                    break
                discard(toolchain.ccache_of_checks())
        if environment and kernel.content_sha256 in contents:
            self._cache.mark_checked(kernel)
        return RebuildCheck(tuple(contents), by_ccache=bool(environment))

    def recorded_rebuild_check(self, kernel: Kernel) -> RebuildCheck | None:
        """The result of :meth:`check_by_rebuild` in an earlier run, if it confirmed this kernel; else None."""
        return RebuildCheck((kernel.content_sha256,), earlier=True) if self._cache.is_checked(kernel) else None

    def _prepared(self, places: BuildPlaces) -> BuildPlaces:
        """The same places without leftovers of the last make, which may have been killed."""
        places = places.prepared()
        if self._settings.sandbox:
            remove_strays(places.build, places.source)
        builddir.remove_stale_outputs(places)
        return places

    def _unmet(self, obtained: kconfig.Options) -> tuple[str, ...]:
        """The options that were requested and not obtained, except optional ones."""
        missed = kconfig.unmet(self._asked, obtained)
        return tuple(line for line in missed if line.partition("=")[0] not in self._optional)

    def _require_tools(self) -> None:
        """Raise :class:`InfraError` for a program or header that the build needs and this host no longer has."""
        for row in (*toolchain.program_rows(self._wanted), *toolchain.header_rows(self._wanted)):
            if row.state is Grade.MISSING:
                raise InfraError(
                    f"the kernel build failed, and this host lacks what it needs: {row.what}", row.remedy or ""
                )

    def _made(self, tree: str, make: Make, trees: TreeChanges | None) -> Product:
        """The result of :meth:`_made_once`; a failure that may be the host's is raised only if it happens twice.

        The second attempt compiles everything again, so that neither bad memory nor a damaged object is held against
        the source. A time-out is raised at once: another trial finds in ccache what this one compiled in time.
        """
        places = make.places
        log_bytes = places.log_bytes()
        try:
            return self._made_once(make, tree, trees)
        except KernelFault as fault:
            if not fault.kind.of_compiling:
                raise
            if surely_of_the_source("\n".join(places.logged_since(log_bytes)), places.source, places.build):
                self._cache.store_failure(BuildFailure(self.key(tree), fault.fault, places.log))
                raise
            self._require_tools()
            builddir.empty_build_directory(places, f"this may be the host's fault ({fault.reason})")
        environment = make.environment and self._ccache(places, anew=True)
        deadline = Deadline(make.deadline.what, make.deadline.seconds)
        return self._made_once(replace(make, deadline=deadline, environment=environment))

    def _made_once(self, make: Make, tree: str = "", trees: TreeChanges | None = None) -> Product:
        with builddir.building(make.places), blamed_on_make(make.places.build):
            if trees is not None and self._is_configured(make.places, tree, trees):
                obtained = _configured(make.places)
            else:
                obtained = self._configure(make)
            if trees is not None:
                config = sources.whole(make.places.build / product.CONFIG, kconfig.MOST_BYTES)
                stamp = f"{self.key(tree)} {hashlib.sha256(config).hexdigest()}\n"
                (make.places.state / _CONFIGURED).write_text(stamp, encoding="ascii")
            modular = kconfig.has_modules(obtained)
            make.run(Stage.BUILD, "bzImage", *(("modules",) if modular else ()))
            installed = product.install_modules(make) if modular else None
            product.require_image(make.places.build)
            return product.found(make.places, obtained, installed, quirks.files(QUIRKS))

    def _made_ready(self, places: BuildPlaces, what: str = "kernel build") -> tuple[Make, tuple[quirks.Quirk, ...]]:
        """The make of this source tree, with its quirks applied, and these quirks."""
        applied = tuple(quirk for quirk in QUIRKS if quirk.applies(places.source))
        quirks.apply_edits((edit for quirk in applied for edit in quirk.edits), places.source, places.state)
        # The compiler is detected again: the system may be upgraded while a bisection lasts for days.
        chosen = toolchain.detect(self._compiler.command)
        toolchain.check_unchanged((self._compiler,), (replace(self._compiler, identity=chosen.identity),))
        variables = {**_PINNED_VARIABLES, "CC": chosen.cc, "HOSTCC": chosen.host_cc}
        variables |= {name: value for quirk in applied for name, value in quirk.variables}
        environment = self._ccache(places) if chosen.cached else {}
        jobs = self._settings.jobs or len(os.sched_getaffinity(0))
        deadline = Deadline(what, self._settings.build_deadline_s)
        return Make(places, variables, jobs, deadline, environment, self._settings.sandbox), applied

    def _ccache(self, places: BuildPlaces, *, anew: bool = False, checks: bool = False) -> dict[str, str]:
        sandboxed = self._settings.sandbox
        return toolchain.ccache_environment(places.run_dir, anew=anew, sandboxed=sandboxed, checks=checks)

    def _is_configured(self, places: BuildPlaces, tree: str, trees: TreeChanges) -> bool:
        """Whether make would write the ``.config`` that is there: no file that decides on it has changed since.

        Asking takes hundredths of a second; configuring takes 4 of the 12 s of a build that compiles one file of v6.1.
        """
        try:
            key, digest = (places.state / _CONFIGURED).read_text(encoding="ascii").split()
            config = sources.whole(places.build / product.CONFIG, kconfig.MOST_BYTES)
        except (OSError, ValueError):
            return False
        if not key.startswith(self._family) or hashlib.sha256(config).hexdigest() != digest:
            return False
        changes = trees.changes(key.removeprefix(self._family), tree)
        deciding = quirks.files(QUIRKS)
        return changes is not None and not any(
            sources.may_configure(change) or change.path in deciding for change in changes
        )

    def _configure(self, make: Make) -> kconfig.Options:
        """Make ``.config``, touched only if it differs, and return its options.

        Without a base everything that is not requested is off, which makes the smallest kernel.
        """
        wanted = make.places.state / "wanted.config"
        current, new = (make.places.build / name for name in (product.CONFIG, f"{product.CONFIG}.new"))
        aside = {"KCONFIG_CONFIG": new.name}
        wanted.write_text(kconfig.render(self._wanted), encoding="utf-8")
        wanted.chmod(0o644)
        remove_tree(new)  # another commit's make may have left anything here
        for known in (_CONFIGURED, DEFCONFIG):
            (make.places.state / known).unlink(missing_ok=True)
        if self._base is None:
            make.run(Stage.CONFIG, "allnoconfig", variables={**aside, "KCONFIG_ALLCONFIG": str(wanted)})
        else:
            shutil.copyfile(wanted, new)
        make.run(Stage.CONFIG, "olddefconfig", variables=aside)
        if not new.is_file():
            raise KernelFault(Stage.CONFIG, FaultKind.CONFIG_ERROR, "make olddefconfig ended well and made no .config")
        kconfig.read_effective(new)  # an unreadable file must not replace a readable one
        if not (
            current.is_file()
            and current.stat().st_size == new.stat().st_size
            and current.read_bytes() == new.read_bytes()
        ):
            remove_tree(current)
            new.replace(current)
        return _configured(make.places)


def _configured(places: BuildPlaces) -> kconfig.Options:
    """The options of the build directory's ``.config``, which is copied to the logs."""
    current = places.build / product.CONFIG
    obtained = kconfig.read_effective(current)
    shutil.copyfile(current, places.logs / CONFIG)
    return obtained


def _short_config(make: Make) -> bytes | None:
    """The .config as ``make savedefconfig`` writes it, also copied to the logs; None if the tree cannot make it.

    It is kept until the build directory is configured again.
    """
    file, kept = make.places.build / "defconfig", make.places.state / DEFCONFIG
    if kept.exists():
        shutil.copyfile(kept, make.places.logs / DEFCONFIG)
        return kept.read_bytes()
    remove_tree(file)
    # No measurement depends on this file, so a failure is not held against the tree.
    with suppress(KernelFault), blamed_on_make(make.places.build):
        make.run(Stage.BUILD, "savedefconfig")
        short = sources.whole(file, kconfig.MOST_BYTES)
        for place in (kept, make.places.logs / DEFCONFIG):
            place.write_bytes(short)
        return short
    return None
