"""The settings that hold on this host: whether KVM works is found out where nobody knows it."""

import argparse

import pytest

from bisector.commands import arguments as given
from bisector.config import Accelerator, GuestClock, MachineSettings, StorageSettings, options
from bisector.vm import accelerator, probes

KVM, TCG = Accelerator.KVM, Accelerator.TCG


@pytest.mark.parametrize(
    ("known", "found", "tries", "clock"),
    [
        pytest.param(TCG, None, True, GuestClock.INSTRUCTIONS, id="known"),
        pytest.param(KVM, None, True, GuestClock.HOST, id="works"),
        pytest.param(None, TCG, True, GuestClock.INSTRUCTIONS, id="tried, and runs nothing"),
        pytest.param(None, None, True, GuestClock.HOST, id="tried, and a kernel has the last word"),
        pytest.param(None, TCG, False, GuestClock.HOST, id="not tried"),
    ],
)
def test_guests_count_their_time_where_kvm_is_known_or_found_to_run_nothing(
    *,
    known: Accelerator | None,
    found: Accelerator | None,
    tries: bool,
    clock: GuestClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(given, "known_accelerator", lambda machine: known)
    monkeypatch.setattr(probes, "try_kvm", lambda machine: found)
    monkeypatch.setattr(given, "could_count", accelerator.could_count)
    effective = given.effective(argparse.Namespace(config=None), given={}, tries=tries)
    assert effective.settings.machine.clock is clock
    assert ("trying whether KVM works here" in capsys.readouterr().err) is (known is None and tries)


def test_what_runs_guests_elsewhere_is_not_tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(machine: MachineSettings, storage: StorageSettings, *_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(given, "could_count", never)
    found = given.effective(argparse.Namespace(config=None), given={}, here=False)
    assert found.settings == options.load().settings
