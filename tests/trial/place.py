"""A host that measures commits with a guest of fake_guest.py: everything else on the path of a trial is real."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from bisector.config import options
from bisector.core.events import Event, StageStarted
from bisector.core.subject import Setup
from bisector.core.trial import Stage, Trial
from bisector.executor.local import LocalExecutor
from bisector.trial.runner import Bench, TrialRequest
from bisector.vm.image import GuestImage
from bisector.vm.machine import ACCELERATOR, VirtualMachines
from tests import examples, fakes
from tests.executor.bench import Builder
from tests.guest_answers import FIO, FIO_FILES, FIO_RUNS, STORAGE
from tests.guestshell import Answer
from tests.vm.fake_guest import FakeClock, FakeHypervisor, Script

COMMIT = examples.commit(7)
REQUEST = TrialRequest(3, examples.cell(COMMIT), {})
NOTHING: Mapping[str, str] = MappingProxyType({})
RAN = replace(FIO, takes_s=43.0, files={f"/tmp/bisector/{name}": text for name, text in FIO_FILES.items()})
SOUND = {
    FIO_RUNS: RAN,
    "mkdir /tmp/bisector": Answer(files={"/tmp/bisector": None}),
    "mkfs.ext4 -q": Answer(takes_s=2.0),
}
SOUND |= STORAGE


def sound_but(answers: dict[str, Answer]) -> Script:
    """A guest that answers these commands in another way, and the others as a sound one does."""
    return Script(answers | {key: answer for key, answer in SOUND.items() if key not in answers})


@dataclass
class Place:
    """A host with a guest image, and a run's directory on it."""

    path: Path
    clock: FakeClock = field(default_factory=FakeClock)
    events: list[Event] = field(default_factory=list)
    interrupted_at: StageStarted | None = None

    def __post_init__(self) -> None:
        self.run_dir.mkdir()
        (self.path / "kernel.config").write_text("CONFIG_EXT4_FS=y\n", encoding="utf-8")
        (self.path / "root.img").write_bytes(bytes(1 << 20))
        self.play(Script(SOUND))

    @property
    def run_dir(self) -> Path:
        return self.path / "run"

    def play(self, script: Script) -> FakeHypervisor:
        self.hypervisor = FakeHypervisor(script, self.clock, self.path / "guests")
        return self.hypervisor

    def tell(self, event: Event) -> None:
        self.events.append(event)
        if event == self.interrupted_at:
            raise KeyboardInterrupt

    def measure(
        self, request: TrialRequest = REQUEST, given: Mapping[str, str] = NOTHING, on: Setup | None = None
    ) -> Trial:
        settings = options.load({"machine.accelerator": "tcg", **given}, directory=Path("/")).settings
        request = replace(request, cell=replace(request.cell, setup=on or settings.setup))
        image = GuestImage(self.path / "root.img", self.path / "key", "ssh-ed25519 AAAA", "test")
        kernel = replace(examples.kernel(), config=self.path / "kernel.config")
        builder, source = cast("Any", Builder(kernel, has_all=True)), cast("Any", None)
        hypervisor = self.hypervisor
        with VirtualMachines(
            settings, image, self.run_dir, lambda: hypervisor, print, log_in=hypervisor.log_in, clock=self.clock
        ) as machines:
            bench = Bench(settings, self.run_dir, source, builder, machines, self.tell, self.clock)
            try:
                return fakes.measured(LocalExecutor(bench), request)
            finally:
                self.check_nothing_is_left()

    def own_image(self) -> dict[str, str]:
        """The settings of an image that is not built by us."""
        given = {f"machine.{name}": f"{self.path}/{name}" for name in ("image", "image_key", "image_host_key")}
        for path in given.values():
            Path(path).touch()
        return given

    @property
    def commands(self) -> list[str]:
        return self.hypervisor.computers[-1].commands

    @property
    def stages(self) -> list[tuple[Stage, str]]:
        return [(event.stage, event.detail) for event in self.events if isinstance(event, StageStarted)]

    def check_nothing_is_left(self) -> None:
        """Wherever the trial ended: it has left its files, and nothing else."""
        assert self.hypervisor.running == []
        assert all(link.closed for computer in self.hypervisor.computers for link in computer.links)
        assert {path.name for path in self.run_dir.iterdir()} <= {"trials", ACCELERATOR}
        opened = (path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink())
        assert not [path for path in opened if path.is_relative_to(self.path)]
