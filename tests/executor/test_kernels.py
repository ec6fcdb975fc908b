"""Kernels on their way between hosts: built on one, booted on all."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bisector.config import Settings, options
from bisector.core import resources
from bisector.core.deadline import Deadline
from bisector.core.errors import InfraError, UserError
from bisector.core.events import Event, Note
from bisector.core.subject import Commit, Compiler, Kernel
from bisector.core.trial import Stage
from bisector.executor.base import BuildRequest, ControlRequest, Finished, Job, Progress, Request
from bisector.executor.cluster.coordinator import Coordinator
from bisector.executor.cluster.security import door
from bisector.executor.freight import HostRefused, Sealed
from bisector.executor.kernels import kernels_of
from bisector.executor.remote import RemoteExecutor
from bisector.executor.spec import Spec
from bisector.executor.spool import Spool
from bisector.executor.stock import Stock
from bisector.executor.supply import Supplies
from bisector.fleet.versions import compared
from bisector.git.repository import Repository
from bisector.git.source_tree import SourceTree
from bisector.kernel import toolchain
from bisector.kernel.build import KernelBuilder
from bisector.kernel.builddir import BuildPlaces
from bisector.kernel.cache import KernelCache
from bisector.trial.runner import TrialRequest
from tests import examples, fakes
from tests.executor import engines, fleet
from tests.executor.bench import settings_of
from tests.executor.engines import WAIT_S, a_kernel
from tests.git.histories import build, git, linear
from tests.kernel.bench import Bench, ccache_in

TREE = "b" * 40
KEY, OTHER = f"{'a' * 32}-{TREE}", f"{'c' * 32}-{TREE}"
COMMIT = examples.commit(7)
GCC = Compiler("gcc", "gcc 12.2.0, GNU ld 2.40")
CLANG = Compiler("clang", "clang 14.0.6, GNU ld 2.40")


# Under which key


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """With files of a person's own."""
    (tmp_path / "base.config").write_text("CONFIG_SMP=y\n")
    (tmp_path / "own.config").write_text("CONFIG_HZ_1000=y\n")
    words = {"kernel.base_config": "base.config", "kernel.fragments": ["vm", "./own.config"]}
    return options.load(words, directory=tmp_path).settings


def there(spec: Spec, place: Path) -> tuple[KernelBuilder, Request]:
    """The builder of a job's host, and what it is to do."""
    place.mkdir()
    spec.unpack(place)
    settings, request = spec.unpacked(place)
    return KernelBuilder(settings.kernel, KernelCache(place / "kernels", 1), resources.kconfigs()), request


def test_a_host_looks_under_the_key_that_the_coordinator_offers(settings: Settings, tmp_path: Path) -> None:
    request = TrialRequest(3, examples.cell(COMMIT), {}, (GCC, CLANG))
    found = kernels_of(settings, request)
    builder, _ = there(Spec.of("run", Job(3, request), settings), tmp_path / "host")
    assert found == tuple(builder.using(one).key(COMMIT.tree) for one in (GCC, CLANG))
    assert len({*found, *kernels_of(settings_of("hdd"), request)}) == 4


def test_a_subject_with_settings_of_its_own_has_another_key(settings: Settings) -> None:
    plain = settings_of("hdd")
    request = TrialRequest(3, examples.cell(COMMIT), {}, (GCC,))
    assert kernels_of(plain, replace(request, settings=settings)) == kernels_of(settings, request)
    built = BuildRequest(COMMIT, GCC, settings)
    assert kernels_of(plain, built) == kernels_of(settings, request)


def test_what_was_measured_is_looked_for_first() -> None:
    settings, measured = settings_of("hdd"), replace(examples.kernel(), key=KEY)
    request = TrialRequest(3, examples.cell(COMMIT), {}, (GCC,), kernel=measured)
    assert kernels_of(settings, request) == (KEY, *kernels_of(settings, replace(request, kernel=None)))


@pytest.mark.parametrize(
    "request_",
    [
        TrialRequest(3, examples.cell(COMMIT), {}, (GCC,), anew=True),
        TrialRequest(3, examples.cell(COMMIT), {}, (GCC,), image=Path("/boot/vmlinuz")),
        TrialRequest(3, examples.cell(COMMIT), {}),
        ControlRequest(COMMIT, (GCC,), Stage.BUILD),
        BuildRequest(COMMIT, GCC, measured=examples.kernel()),
    ],
    ids=["anew", "an image", "a compiler of the host's choice", "whether it builds", "once more"],
)
def test_what_is_built_whatever_is_kept_has_no_key(request_: Request) -> None:
    assert kernels_of(settings_of("hdd"), request_) == ()
    assert kernels_of(settings_of("hdd"), ControlRequest(COMMIT, (GCC,), Stage.BOOT)) != ()


# From cache to cache


@pytest.fixture
def supplies(tmp_path: Path) -> Iterator[Supplies]:
    build(tmp_path / "linux", linear(2))
    (tmp_path / "sent").mkdir()
    with Repository.open(tmp_path / "linux") as repository:
        yield Supplies(repository, KernelCache(tmp_path / "kernels", 1 << 30), tmp_path / "sent")


def host(tmp_path: Path, name: str) -> Stock:
    home = tmp_path / name
    home.mkdir()
    return Stock(Spool(home), None, engines.kernels(home), lambda text: None)


def spec(commit: Commit, *keys: str, compilers: tuple[Compiler, ...] = ()) -> Spec:
    request = TrialRequest(3, examples.cell(commit), {}, compilers)
    return replace(Spec.of("run", Job(3, request), settings_of("hdd")), kernels=keys)


def stored(cache: KernelCache, tmp_path: Path, content: str, key: str = KEY) -> Kernel:
    return cache.store(a_kernel(tmp_path, key, content))


def measured(kernel: Kernel | None) -> Finished:
    return Finished(3, "bench1", replace(fakes.trial(COMMIT, 1000.0), kernel=kernel), "now")


def sources(stock: Stock) -> bool:
    return bool(list((stock.spool.sources / "objects/pack").glob("*.pack")))


def test_what_one_host_has_built_another_one_boots(supplies: Supplies, tmp_path: Path) -> None:
    commit = supplies.repository.resolve("main")
    one, other = host(tmp_path, "bench1"), host(tmp_path, "bench2")
    supplies.give(one, spec(commit, KEY))
    assert sources(one)
    built = stored(one.kernels, tmp_path, "built by one")
    supplies.take(one, measured(built), ())
    supplies.give(other, spec(commit, KEY))
    found = other.kernels.find(KEY)
    assert found is not None
    assert found.image.read_bytes() == built.image.read_bytes()
    assert not sources(other)
    assert not list((one.spool.transfers / "leaving").iterdir())
    assert not list((other.spool.transfers / "arriving").iterdir())
    assert not list(supplies.place.glob("*kernel*"))


def test_what_a_build_alone_has_kept_is_fetched_by_the_keys_that_it_may_have(
    supplies: Supplies, tmp_path: Path
) -> None:
    one = host(tmp_path, "bench1")
    stored(one.kernels, tmp_path, "built by one")
    supplies.take(one, Finished(3, "bench1", None, "now"), (OTHER, KEY))
    assert supplies.kernels.find(KEY) is not None
    supplies.take(one, measured(None), (KEY,))


def test_a_kernel_that_is_on_both_sides_does_not_travel(
    supplies: Supplies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host(tmp_path, "bench1")
    kernel = stored(one.kernels, tmp_path, "the same")
    stored(supplies.kernels, tmp_path, "the same")
    monkeypatch.setattr(KernelCache, "pack", lambda *words: pytest.fail("it travels"))
    supplies.give(one, spec(supplies.repository.resolve("main"), KEY))
    supplies.take(one, measured(kernel), ())
    assert not sources(one)


def test_of_two_kernels_of_one_key_all_hosts_have_that_of_the_coordinator(supplies: Supplies, tmp_path: Path) -> None:
    one = host(tmp_path, "bench1")
    stored(one.kernels, tmp_path, "built by one")
    ours = stored(supplies.kernels, tmp_path, "built before")
    supplies.give(one, spec(supplies.repository.resolve("main"), KEY))
    found = one.kernels.find(KEY)
    assert found is not None
    assert found.content_sha256 == ours.content_sha256


def test_a_kernel_of_a_compiler_that_is_tried_later_is_not_sent(supplies: Supplies, tmp_path: Path) -> None:
    one = host(tmp_path, "bench1")
    stored(supplies.kernels, tmp_path, "built before", OTHER)
    supplies.give(one, spec(supplies.repository.resolve("main"), KEY, OTHER))
    assert one.kernels.keys("") == ()
    assert sources(one)


def test_a_kernel_that_is_damaged_on_the_way_is_not_kept(
    supplies: Supplies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host(tmp_path, "bench1")
    kernel = stored(one.kernels, tmp_path, "built by one")
    fetch = one.fetch
    monkeypatch.setattr(Stock, "fetch", lambda _, sha256, offset: fetch(sha256, offset).replace(b"built", b"build"))
    with pytest.raises(InfraError, match="digest differs"):
        supplies.take(one, measured(kernel), ())
    monkeypatch.setattr(Stock, "seal", lambda _, key: Sealed("0" * 64, 10))
    monkeypatch.setattr(Stock, "fetch", lambda _, sha256, offset: b"")
    with pytest.raises(InfraError, match="digest differs"):
        supplies.take(one, measured(kernel), ())
    assert supplies.kernels.keys("") == ()


def test_a_kernel_that_a_host_cannot_take_is_built_there(
    supplies: Supplies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host(tmp_path, "bench1")
    stored(supplies.kernels, tmp_path, "built before")
    monkeypatch.setattr(Stock, "keep", lambda *words: "no room")
    supplies.give(one, spec(supplies.repository.resolve("main"), KEY))
    assert sources(one)


def _missing(command: str) -> Compiler:
    raise UserError(f"compiler {command}: it is not installed")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            lambda command: Compiler(command, "gcc 13.1.0, GNU ld 2.41"),
            "gcc is gcc 13.1.0, GNU ld 2.41, and that of this",
        ),
        (_missing, "compiler gcc: it is not installed there"),
    ],
)
def test_a_host_with_another_compiler_is_refused_by_both_names(
    supplies: Supplies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any, why: str
) -> None:
    one = host(tmp_path, "bench1")
    monkeypatch.setattr(toolchain, "named", found)
    with pytest.raises(HostRefused) as caught:
        supplies.give(one, spec(supplies.repository.resolve("main"), KEY, compilers=(GCC,)))
    assert why in caught.value.message
    assert "not installed" in caught.value.message or GCC.identity in caught.value.message
    assert not sources(one)
    monkeypatch.setattr(toolchain, "named", lambda command: GCC)
    supplies.give(one, spec(supplies.repository.resolve("main"), KEY, compilers=(GCC,)))


def test_what_was_built_of_sent_sources_is_what_another_builder_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real git, a real build of the stand-in for a kernel tree, and what it read comes along."""
    ccache_in(tmp_path / "caches", monkeypatch)
    made = Bench(tmp_path)
    git(made.source, "init", "-q")
    git(made.source, "add", "--all", "--force")
    git(made.source, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "all")
    (tmp_path / "sent").mkdir()
    one, other = host(tmp_path, "bench1"), host(tmp_path, "bench2")

    def builder(stock: Stock) -> KernelBuilder:
        return KernelBuilder(made.settings, stock.kernels, made.kconfigs)

    with Repository.open(made.source) as repository:
        commit = repository.resolve("HEAD")
        supplies = Supplies(repository, KernelCache(tmp_path / "kernels", 1 << 30), tmp_path / "sent")
        key = builder(one).key(commit.tree)
        supplies.give(one, spec(commit, key))
        place = one.spool.place("run")
        with Repository.open(one.spool.sources) as mirror, SourceTree(mirror, place, keep=True) as tree:
            places = BuildPlaces(tree.checkout(commit), place / "build", place / "logs", place)
            kernel = builder(one).build(commit.tree, places)
        supplies.take(one, measured(kernel), ())
        supplies.give(other, spec(commit, key))
    found = builder(other).find(commit.tree)
    assert found is not None
    assert (found.key, found.content_sha256) == (key, kernel.content_sha256)
    assert builder(other).read_by(key) == builder(one).read_by(key) is not None
    assert not sources(other)


# With processes


@dataclass
class Fleet:
    """A coordinator, and hosts whose jobs are nothing but builds."""

    place: Path
    stack: ExitStack
    supplies: Supplies

    def __post_init__(self) -> None:
        authority = fleet.Authority.new()
        self.other = authority.certify(self.place / "of-hosts")
        own = door("tls://127.0.0.1:0", authority.certify(self.place / "of-coordinator"))
        self.coordinator = self.stack.enter_context(Coordinator(own, self.supplies))
        self.told: list[Event] = []
        (self.place / "run").mkdir()

    def spool(self, name: str) -> Path:
        return self.place / name / "spool"

    def builds(self, name: str) -> int:
        path = self.spool(name) / "builds"
        return len(path.read_text().split()) if path.exists() else 0

    def executor(self, *names: str) -> RemoteExecutor:
        for name in names:
            address = self.coordinator.address
            self.stack.enter_context(fleet.worker(address, self.other, self.spool(name), name, engines.BUILT))
        made = RemoteExecutor(
            self.coordinator,
            "run",
            self.place / "run",
            settings_of("hdd"),
            compared(),
            lambda: (),
            self.told.append,
            patience_s=1.0,
            kernels_of=lambda settings, request: (KEY,),
        )
        made.wait_for_hosts(len(names), WAIT_S)
        return made


@pytest.fixture
def hosts(supplies: Supplies, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path, stack, supplies)


def ended(executor: RemoteExecutor) -> Any:
    while isinstance(news := executor.next(), Progress):
        pass
    return news


@pytest.mark.fleet
def test_a_kernel_is_built_once_in_the_fleet(hosts: Fleet) -> None:
    executor, commit = hosts.executor("bench1", "bench2"), hosts.supplies.repository.resolve("main")
    for id_, name in enumerate(("bench1", "bench2", "bench1"), 1):
        executor.submit(Job(id_, TrialRequest(id_, examples.cell(commit), {})), name)
        assert isinstance(ended(executor), Finished)
        Deadline("the kernel", WAIT_S).poll(lambda: hosts.supplies.kernels.find(KEY))
    assert (hosts.builds("bench1"), hosts.builds("bench2")) == (1, 0)
    kernels = [engines.kernels(hosts.spool(name)).find(KEY) for name in ("bench1", "bench2")]
    assert {kernel and kernel.image.read_text() for kernel in kernels} == {"built by bench1 in job 1\n"}


@pytest.mark.fleet
def test_a_host_with_another_compiler_gets_no_job(hosts: Fleet) -> None:
    executor, commit = hosts.executor("bench1"), hosts.supplies.repository.resolve("main")
    own = toolchain.named("gcc")
    executor.submit(Job(1, TrialRequest(1, examples.cell(commit), {}, (Compiler("gcc", "gcc 4.9, GNU ld 2.25"),))))
    error = ended(executor).error
    assert "no host had job run/1" in error.message
    (note,) = hosts.told
    assert isinstance(note, Note)
    assert note.text == (
        f"bench1 is not used: its compiler gcc is {own.identity}, and that of this run is gcc 4.9, GNU ld 2.25; "
        "kernels of two compilers cannot be compared"
    )
    assert list(executor.idle) == []
    assert hosts.builds("bench1") == 0
