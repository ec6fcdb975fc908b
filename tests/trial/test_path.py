"""The path of one trial: its stages, files and times, what each fault on the way becomes, and what it leaves.

Everything is real but the kernel's build, libvirt, QEMU and the guest: those are played by tests/vm/fake_guest.py, in
a time of their own.
"""

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from bisector.analysis.early_stop import StopRule
from bisector.config import options
from bisector.core.errors import InfraError
from bisector.core.events import StageStarted
from bisector.core.figures import Run
from bisector.core.shell import Step
from bisector.core.subject import Cell, Kind, Subject
from bisector.core.trial import AttemptFailed, Era, FaultKind, Stage, Trial, TrialRefused, difference
from bisector.host.files import our_files
from bisector.kernel.product import commit_of
from bisector.storage import layers
from bisector.storage.disks import kernel_fault
from bisector.storage.layer import Device, Layer, LayerPlan, Phase
from bisector.trial.runner import TrialRequest
from bisector.vm.definition import DomainSpec
from bisector.workload.base import RunSite
from bisector.workload.fio.fio import Fio
from tests import examples
from tests.guest_answers import FIO_FILES, FIO_RUNS, STORAGE
from tests.guestshell import Answer
from tests.kernel.test_image import bzimage
from tests.trial.place import COMMIT, NOTHING, RAN, REQUEST, SOUND, Place, sound_but
from tests.vm.fake_guest import RELEASE, Script, Trouble

RULE = StopRule(1_363.0, 40.0, 20.5)
FILES = ["console.log", "host.json", "kernel.config", "storage.txt"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# A trial that goes well


def test_a_trial_says_what_its_figures_depend_on(place: Place) -> None:
    """Also one that has no guest; content of the image, and not when it was written."""

    def era(qemu: str = "7.2.22", ends: Stage = Stage.DONE) -> Era:
        place.play(Script(SOUND)).qemu_version = qemu
        request = replace(REQUEST, measured_kernels={examples.kernel().content_sha256: "a" * 40})
        found = place.measure(REQUEST if ends is Stage.DONE else request).era
        assert len(place.hypervisor.computers) == (ends is Stage.DONE)
        assert found is not None
        return found

    first = era()
    assert (first.accelerator, first.qemu, first.digest) == ("tcg", "7.2.22", first.sealed.digest)
    (place.path / "root.img").touch()
    assert era() == era(ends=Stage.BUILD) == first
    assert difference(first, era("7.2.23")) == "QEMU 7.2.22 → 7.2.23"
    (place.path / "root.img").write_bytes(bytes(1 << 20) + b"lvm2 2.03.17")
    rebuilt = era()
    assert rebuilt.digest != first.digest
    assert difference(first, rebuilt) == f"guest image {first.image} → {rebuilt.image}"
    assert replace(first, boot="another").sealed.digest == first.digest


@pytest.mark.parametrize(("stack", "runs"), [("lvmcache", ["empty", "full"]), ("ssd", ["ssd"]), ("hdd", ["hdd"])])
def test_the_parts_of_a_trial_are_those_of_its_stack(place: Place, stack: str, runs: list[str]) -> None:
    """Whatever the stack of the settings is."""
    disks = ["ssd", "hdd"] if stack == "lvmcache" else [stack]
    place.play(sound_but({"stat -L": Answer("".join(f"fe:{n}0\n" for n, _ in enumerate(disks, 1)))}))
    (place.path / "kernel.defconfig").write_text("CONFIG_EXT4_FS=y\n", encoding="utf-8")
    trial = place.measure(on=examples.SETUP if stack == "lvmcache" else examples.alone(stack))
    assert (trial.fault, trial.stage, [run.name for run in trial.runs]) == (None, Stage.DONE, runs)
    assert [disk.serial for disk in place.hypervisor.computers[0].spec.disks] == disks
    runs_at = [(Stage.WORKLOAD, f"{name} run") for name in runs]
    assert place.stages == [(Stage.BOOT, ""), (Stage.STORAGE, ""), *runs_at]
    left = [f"{name}/{file}" for name in runs for file in FIO_FILES]
    assert [one.name for one in trial.artifacts] == sorted([*FILES, "kernel.defconfig", *left])
    assert "Linux version" in (place.run_dir / trial.artifacts[0].path).read_text(encoding="ascii")
    parts = trial.timings
    assert parts.build_s == 0.0
    assert parts.boot_s == pytest.approx(3.0, abs=0.1)
    assert parts.storage_s == pytest.approx(2.0, abs=0.3)
    assert parts.workload_s == pytest.approx(len(runs) * 43.0, abs=0.5)
    assert parts.total_s == pytest.approx(parts.boot_s + parts.storage_s + parts.workload_s, abs=0.01)


def of_image(file: Path) -> TrialRequest:
    return replace(REQUEST, cell=Cell(Subject(commit_of(file), Kind.IMAGE), REQUEST.cell.setup), image=file)


def test_an_image_is_booted_as_it_is(place: Place) -> None:
    """Nobody knows its build-id; its release is that of its header."""
    file = bzimage(place.path / "vmlinuz", f"{RELEASE} (a@b) #1 SMP")
    trial = place.measure(of_image(file))
    assert (trial.fault, trial.stage, trial.timings.build_s) == (None, Stage.DONE, 0.0)
    assert place.hypervisor.computers[0].spec.kernel == file
    assert trial.kernel is not None
    assert (trial.kernel.release, trial.kernel.content_sha256) == (RELEASE, trial.commit.sha)
    assert "kernel.config" not in {one.name for one in trial.artifacts}


def test_another_kernel_than_that_of_the_image_is_no_fault_of_it(place: Place) -> None:
    with pytest.raises(
        AttemptFailed, match=rf"the guest runs {RELEASE} .*, and not the kernel that was built, 6\.1\.0"
    ):
        place.measure(of_image(bzimage(place.path / "vmlinuz", "6.1.0 (a@b) #1 SMP")))


def test_an_image_that_is_gone_is_no_fault_of_it(place: Place) -> None:
    request = of_image(file := bzimage(place.path / "vmlinuz"))
    file.unlink()
    with pytest.raises(AttemptFailed, match="vmlinuz cannot be read"):
        place.measure(request)


class Warm(Layer):
    """Of another package: a device that has to become warm."""

    name = "warm"
    phases = (Phase("cold", judged=False), Phase("tepid", judged=False), Phase("hot"))

    def make(self, below: Sequence[Device], suffix: str) -> LayerPlan:
        return LayerPlan("/dev/warm", (Step(f"warm up {below[0].path}", kernel_fault),))


@pytest.fixture
def warm() -> Iterator[None]:
    layers.register(Warm)
    yield
    layers.forget("warm")


@pytest.mark.usefixtures("warm")
def test_a_layer_from_outside_has_its_trials(place: Place) -> None:
    """Files are kept by all runs but the judged one, and that alone may stop early."""
    place.play(sound_but({"stat -L": Answer("fe:10\n"), "warm up": Answer(takes_s=7.0)}))
    trial = place.measure(replace(REQUEST, stop=RULE), given={"storage.stack": "warm(hdd)+ext4"})
    assert (trial.fault, [run.name for run in trial.runs]) == (None, ["cold", "tepid", "hot"])
    assert trial.timings.storage_s == pytest.approx(9.0, abs=0.3)
    (described,) = (one for one in trial.artifacts if one.name == "storage.txt")
    assert (place.run_dir / described.path).read_text().startswith("warm up /dev/disk/by-id/virtio-hdd\n")
    runs = [command for command in place.commands if FIO_RUNS in command]
    assert ["/.kept" in one for one in runs] == [True, True, False]
    assert ["--status-interval" in one for one in runs] == [False, False, True]
    place.play(sound_but({"stat -L": Answer("fe:10\n"), "warm up": Answer("", "warm: too cold", 1)}))
    trial = place.measure(given={"storage.stack": "warm(hdd)+ext4"})
    assert trial.fault is not None
    assert (trial.fault.stage, trial.fault.reason) == (Stage.STORAGE, "warm: exit 1: warm: too cold")


def test_a_request_can_have_settings_of_its_own(place: Place) -> None:
    """As the trials of a comparison, of which each setup has its own: those of the bench are not looked at."""
    own = {"storage.stack": "hdd", "workload.runtime": "20s", "storage.hdd.size": "512MiB", "machine.append": "nosmt"}
    other = options.load(own, directory=Path("/")).settings
    place.play(sound_but({"stat -L": Answer("fe:10\n")}))
    trial = place.measure(replace(REQUEST, settings=other), on=other.setup)
    assert [run.name for run in trial.runs] == ["hdd"]
    assert trial.setup == other.setup
    (computer,) = place.hypervisor.computers
    assert (computer.sizes, computer.spec.command_line[-1]) == ({"hdd": 512 << 20}, "nosmt")
    (ran,) = (command for command in place.commands if FIO_RUNS in command)
    assert "RUNTIME=20" in ran


def test_every_run_of_a_trial_has_the_seed_of_its_request(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, usual = [], Fio.run

    def run(workload: Fio, site: RunSite) -> Run:
        seeds.append(site.seed)
        return usual(workload, site)

    monkeypatch.setattr(Fio, "run", run)
    place.measure(replace(REQUEST, seed=99))
    assert seeds == [99, 99]


@pytest.mark.parametrize(
    ("through", "guests", "laid_out"), [(Stage.BUILD, 0, 0), (Stage.BOOT, 1, 0), (Stage.STORAGE, 1, 1)]
)
def test_a_control_goes_no_further_than_it_was_asked_to(
    place: Place, through: Stage, guests: int, laid_out: int
) -> None:
    trial = place.measure(replace(REQUEST, through=through))
    assert (trial.fault, trial.stage, trial.runs) == (None, Stage.DONE, ())
    commands = [command for computer in place.hypervisor.computers for command in computer.commands]
    assert (len(place.hypervisor.computers), sum("mkfs.ext4 -q" in one for one in commands)) == (guests, laid_out)


# A guest that is befallen by something

PANIC, OOPS, HANG = FaultKind.PANIC, FaultKind.OOPS, FaultKind.HANG
OURS, INPUT = AttemptFailed, TrialRefused
Ending: TypeAlias = FaultKind | type[AttemptFailed] | type[TrialRefused]

BEFALLS: dict[Trouble, tuple[Ending, str]] = {
    Trouble.PANIC: (PANIC, "Attempted to kill init"),
    Trouble.LATE_PANIC: (PANIC, "Attempted to kill init"),
    Trouble.OOPS: (OOPS, "NULL pointer dereference"),
    Trouble.STALLS: (HANG, "soft lockup"),
    Trouble.HANG: (HANG, "the guest was ready, then nothing for 6"),
    Trouble.STUCK: (HANG, "not seen within"),
    Trouble.RESET: (FaultKind.EXITED, "reset without a word"),
    Trouble.POWER_OFF: (FaultKind.EXITED, "shut down: reboot: Power down"),
    Trouble.NETWORK_LOST: (OURS, "nothing was heard of the guest for 180 s"),
    Trouble.CONNECTION_BROKEN: (OURS, "the connection to the guest broke"),
    Trouble.QEMU_DIED: (OURS, "QEMU died"),
    Trouble.QEMU_KILLED: (OURS, "somebody ended QEMU"),
    Trouble.HOST_FULL: (OURS, "No space left on device (is its disk full?)"),
}
WHERE = {
    "mkfs.ext4 -q": (Stage.STORAGE, 0),
    "DIRECTORY=/mnt/empty": (Stage.WORKLOAD, 0),
    "DIRECTORY=/mnt/full": (Stage.WORKLOAD, 1),
}


def ends(place: Place, stage: Stage, kind: Ending, words: str, given: Mapping[str, str] = NOTHING) -> Trial:
    """A trial that ends in a fault of its kernel, or in what is raised; the facts that it leaves."""
    if isinstance(kind, FaultKind):
        trial = place.measure(given=given)
        assert trial.fault is not None
        assert (trial.fault.stage, trial.fault.kind) == (stage, kind)
        assert words in trial.fault.reason
    else:
        with pytest.raises(kind) as caught:
            place.measure(given=given)
        assert words in str(caught.value)
        assert isinstance(caught.value, AttemptFailed | TrialRefused)
        assert caught.value.trial is not None
        trial = caught.value.trial
        assert trial.fault is None
    assert trial.stage is stage
    return trial


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("trouble", BEFALLS)
def test_what_befalls_a_guest_under_way(place: Place, trouble: Trouble, where: str) -> None:
    (kind, words), (stage, runs) = BEFALLS[trouble], WHERE[where]
    place.play(sound_but({where: Answer(takes_s=12.0, trouble=trouble)}))
    trial = ends(place, stage, kind, words)
    assert len(trial.runs) == runs
    assert {"console.log", "host.json"} <= {one.name for one in trial.artifacts}
    assert trial.timings.boot_s == pytest.approx(3.0, abs=0.1)
    # At once where the console or libvirt tells; else after a minute of silence, or when the command's time is over.
    waits = trouble in (Trouble.HANG, Trouble.STUCK, Trouble.NETWORK_LOST)
    assert (trial.timings.total_s - runs * 43.0 > 60.0) is waits


@pytest.mark.parametrize("where", ["", *WHERE])
def test_an_hour_in_which_nobody_could_listen_is_no_fault(place: Place, where: str) -> None:
    """As on a paused host, or in a frozen cgroup; that the figures are worth less is for others to say."""
    answer = replace(RAN, trouble=Trouble.HOST_STANDS_STILL) if "/mnt" in where else None
    script = sound_but({where: answer or Answer(takes_s=12.0, trouble=Trouble.HOST_STANDS_STILL)})
    place.play(script if where else Script(SOUND, at_boot=(1.0, Trouble.HOST_STANDS_STILL)))
    trial = place.measure()
    assert (trial.fault, trial.stage, len(trial.runs)) == (None, Stage.DONE, 2)


@pytest.mark.parametrize(("speaks", "silent_s"), [(True, 6), (False, 2)])
def test_a_guest_that_hangs_before_its_first_sign_of_life(place: Place, speaks: bool, silent_s: int) -> None:
    """A person's own image gives none: its console may be silent for long, and says nothing of being ready."""
    place.play(replace(sound_but({"mkfs.ext4 -q": Answer(takes_s=5.0, trouble=Trouble.HANG)}), speaks=speaks))
    given = NOTHING if speaks else place.own_image()
    ends(place, Stage.STORAGE, HANG, f"the guest was ready, then nothing for {silent_s}", given)


@pytest.mark.parametrize(
    ("at_s", "trouble", "kind", "words"),
    [
        (0.1, Trouble.PANIC, PANIC, "Attempted to kill init"),
        (1.0, Trouble.OOPS, OOPS, "NULL pointer dereference"),
        (1.0, Trouble.STALLS, HANG, "soft lockup"),
        (0.1, Trouble.HANG, HANG, "the kernel said nothing within 6"),
        (1.0, Trouble.HANG, FaultKind.NO_SSH, "user space was not ready within 6"),
        (0.1, Trouble.RESET, FaultKind.EXITED, "reset before its kernel said anything"),
        (1.0, Trouble.RESET, FaultKind.EXITED, "reset without a word"),
        (1.0, Trouble.POWER_OFF, FaultKind.EXITED, "shut down: reboot: Power down"),
        (1.0, Trouble.NETWORK_LOST, OURS, "SSH to the guest not seen within 30 s"),
        (1.0, Trouble.QEMU_DIED, OURS, "QEMU died"),
        (1.0, Trouble.QEMU_KILLED, OURS, "somebody ended QEMU"),
        (1.0, Trouble.HOST_FULL, OURS, "No space left on device (is its disk full?)"),
    ],
)
def test_what_befalls_a_guest_that_boots(place: Place, at_s: float, trouble: Trouble, kind: Ending, words: str) -> None:
    place.play(Script(SOUND, at_boot=(at_s, trouble)))
    trial = ends(place, Stage.BOOT, kind, words)
    assert (trial.runs, trial.timings.storage_s) == ((), 0.0)
    assert [one.name for one in trial.artifacts] == ["console.log", "host.json", "kernel.config"]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (Script(SOUND, ready_s=None), FaultKind.NO_SSH, "user space was not ready within 6"),
        (Script(SOUND, release="4.19.0"), OURS, "the guest runs 4.19.0"),
        (Script(SOUND, build_id="ab" * 20), OURS, "and not the kernel that was built"),
        (Script(SOUND, refuses_keys=True), OURS, "Authentication failed"),
        (Script(SOUND, sends_nonsense=True), FaultKind.COMMAND_FAILED, "more than 67,108,864 bytes of output: `uname"),
    ],
)
def test_guests_that_are_not_what_was_started(place: Place, script: Script, kind: Ending, words: str) -> None:
    place.play(script)
    ends(place, Stage.BOOT, kind, words)


def test_a_kernel_that_hides_its_build_id_is_the_one_that_was_built(place: Place) -> None:
    place.play(Script(SOUND, build_id=""))
    assert place.measure().fault is None


@pytest.mark.parametrize(("ready_s", "kind"), [(5.0, None), (None, FaultKind.NO_SSH)])
def test_an_image_of_a_persons_own_says_nothing_when_it_is_ready(
    place: Place, ready_s: float | None, kind: FaultKind | None
) -> None:
    """It is asked again and again, until the time for a boot is over."""
    place.play(Script(SOUND, ready_s=ready_s, speaks=False))
    trial = place.measure(given=place.own_image())
    assert (trial.fault and trial.fault.kind) == kind
    assert trial.timings.boot_s == pytest.approx(ready_s or 120.0, abs=1.0)


# A guest whose programs fail


def fio(text: str) -> dict[str, Answer]:
    """A guest in which fio writes this."""
    return {FIO_RUNS: replace(RAN, files={**RAN.files, "/tmp/bisector/fio.json": text})}


def fails(*words: str, status: int = 1) -> Answer:
    return Answer("", "\n".join(words), status)


CUT_OFF = fio(FIO_FILES["fio.json"][:500])
STATUS = STORAGE["dmsetup status"].stdout
COMMAND_FAILED, IO_ERROR = FaultKind.COMMAND_FAILED, FaultKind.IO_ERROR


@pytest.mark.parametrize(
    ("answers", "stage", "kind", "words"),
    [
        (
            {"mkfs.ext4 -q": fails("mkfs.ext4: I/O error")},
            Stage.STORAGE,
            COMMAND_FAILED,
            "mkfs.ext4: exit 1: mkfs.ext4: I/O",
        ),
        ({"lvcreate -y": fails("insufficient free space", status=5)}, Stage.STORAGE, INPUT, "does not fit on its disk"),
        ({"command -v": Answer("cache_check\n", "", 1)}, Stage.STORAGE, INPUT, "the guest image lacks: cache_check"),
        ({"stat -f": Answer("7 4096\n")}, Stage.STORAGE, INPUT, "the file system in the guest has only"),
        ({"dmsetup status": Answer(STATUS.replace("smq", "mq"))}, Stage.STORAGE, COMMAND_FAILED, "the cache is mq"),
        ({"dmsetup status": Answer("0 9 cache Fail\n")}, Stage.STORAGE, IO_ERROR, "dm-cache gave up"),
        ({"stat -L": Answer("fe:20\nfe:10\n")}, Stage.STORAGE, OURS, "the cache's metadata is on 254:16 instead of"),
        ({"mkdir /tmp/bis": fails("No space left on device")}, Stage.WORKLOAD, INPUT, "the guest's root disk is full"),
        ({"drop_caches": fails("Input/output error")}, Stage.WORKLOAD, COMMAND_FAILED, "sync: exit 1"),
        (CUT_OFF | {"stat -f -c %a": Answer("77\n")}, Stage.WORKLOAD, OURS, "fio"),
        (CUT_OFF | {"stat -f -c %a": Answer("0\n")}, Stage.WORKLOAD, INPUT, "the guest's root disk is full"),
        (fio(FIO_FILES["fio.json"].replace('"error" : 0', '"error" : 5', 1)), Stage.WORKLOAD, IO_ERROR, "EIO"),
        (fio(FIO_FILES["fio.json"].replace('"error" : 0', '"error" : 28', 1)), Stage.WORKLOAD, INPUT, "do not fit on"),
        ({FIO_RUNS: replace(RAN, exit_status=1)}, Stage.WORKLOAD, COMMAND_FAILED, "fio: exit 1"),
        ({FIO_RUNS: fails(status=127), "command -v fio": fails()}, Stage.WORKLOAD, INPUT, "the guest image lacks fio"),
        (
            {FIO_RUNS: replace(RAN, files={"/tmp/bisector/fio.json": None})},
            Stage.WORKLOAD,
            COMMAND_FAILED,
            "not a regular",
        ),
        (
            {FIO_RUNS: Answer("9 /etc/passwd\n")},
            Stage.WORKLOAD,
            COMMAND_FAILED,
            "'/etc/passwd', which is not the name",
        ),
    ],
)
def test_programs_that_fail(place: Place, answers: dict[str, Answer], stage: Stage, kind: Ending, words: str) -> None:
    place.play(sound_but(answers))
    ends(place, stage, kind, words)


# Whatever ends it


@pytest.mark.parametrize("detail", ["boot", "storage", "workload empty run", "workload full run"])
def test_a_person_who_interrupts_a_trial_finds_nothing_left(place: Place, detail: str) -> None:
    stage, _, run = detail.partition(" ")
    place.interrupted_at = StageStarted(COMMIT, Stage(stage), run)
    with pytest.raises(KeyboardInterrupt):
        place.measure()
    assert place.stages[-1] == (stage, run)


@pytest.mark.parametrize("kept", [True, False])
def test_a_file_of_ours_that_cannot_be_written_is_no_bug(
    place: Place, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Also where the files of the trial cannot be kept either."""

    def start(spec: DomainSpec) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place.path / "root.qcow2"))

    def lose(*_: Path) -> None:
        raise InfraError("the console cannot be read")

    monkeypatch.setattr(place.hypervisor, "start", start)
    if not kept:
        monkeypatch.setattr("bisector.executor.local.collect", lose)
    with pytest.raises(AttemptFailed, match=r"root\.qcow2: No space left") as caught:
        place.measure()
    assert (caught.value.stage, "df -h" in caught.value.hint) == (Stage.BOOT, True)
    assert caught.value.trial is not None
    assert bool(caught.value.trial.artifacts) is kept


def test_a_real_full_disk(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="No space left on device") as caught, our_files(tmp_path):
        Path("/dev/full").write_text("x", encoding="utf-8")
    assert caught.value.hint == f"make room: df -h {tmp_path}"


def test_a_guest_that_cannot_even_be_prepared_is_no_kernels_doing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without facts nobody asks whether a sound end still works, and blames the commit when it does."""

    def full(image: object, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("bisector.vm.machine.overlay", full)
    with pytest.raises(AttemptFailed) as caught:
        place.measure()
    assert (caught.value.stage, caught.value.trial) == (Stage.BOOT, None)
