"""What stands below the table of a bisection: its footer, and the answer."""

from dataclasses import replace

import pytest

from bisector.commands.report import RENDERERS, Format
from bisector.core.subject import Commit, Relevance
from bisector.core.verdict import State, Verdict
from bisector.report.table import run_blocks
from bisector.status.view import TrialView
from tests import examples as records
from tests.report import documents, examples


def test_footer_counts_what_kernels_lack() -> None:
    lacking = replace(examples.BROKEN.trial, kernel=records.kernel(("CONFIG_VIRTIO_MENU=y",), ("max-page-size",)))
    plain = replace(examples.FIXED.trial, kernel=records.kernel((), ("max-page-size",)))
    view = examples.view(TrialView(1, lacking, Verdict.OLD, ""), TrialView(2, plain, Verdict.NEW, ""))
    footer = examples.footer_text(view, 80)
    assert "not obtained  CONFIG_VIRTIO_MENU=y (1 of 2 kernels)\n" in footer
    assert "quirks        max-page-size\n" in footer


def test_one_compiler_is_in_the_footer_and_several_are_beside_each_kernel_too() -> None:
    by_another = replace(examples.FIXED.trial, kernel=replace(records.kernel(), toolchain="gcc 11.3"))
    one, other = TrialView(1, examples.BROKEN.trial, Verdict.OLD, ""), TrialView(2, by_another, Verdict.NEW, "")
    assert "compiler      gcc 12.2.0, GNU ld 2.40\n" in examples.footer_text(examples.view(one), 80)
    assert "built by" not in examples.shown(run_blocks(examples.view(one)))
    footer = examples.footer_text(examples.view(one, other), 80)
    assert "compiler      gcc 12.2.0, GNU ld 2.40 (1 of 2 kernels)\n              gcc 11.3 (1 of 2 kernels)\n" in footer
    table = examples.shown(run_blocks(examples.view(one, other)))
    assert table.index("built by gcc 12.2.0") < table.index("\n2  ") < table.index("built by gcc 11.3")


def test_footer_says_how_many_commits_can_matter() -> None:
    whole = replace(examples.view(examples.BROKEN, examples.FIXED), relevance=Relevance(14_565, 1_012))
    assert "14,565 commits, 1,012 can matter to this kernel" in examples.footer_text(whole, 80)


def test_long_lists_are_cut_with_their_count() -> None:
    many = tuple(Commit(f"{n:040x}", "t", f"subject {n}", records.STARTED_AT) for n in range(100))
    view = replace(examples.narrowed(), candidates=many)
    answer = examples.answer_text(view, 80)
    assert "one of 100 commits" in answer
    assert "and 92 more" in answer


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED])
def test_what_can_go_on_says_how(state: State) -> None:
    view = replace(examples.view(examples.BROKEN, state=state), message="interrupted by the person at the keyboard")
    answer = examples.answer_text(view, 80)
    assert answer.startswith(state.value)
    assert "interrupted by the person" in answer
    assert answer.endswith("next          bisector resume --run-dir /var/runs/r1\n")


def test_an_answer_by_both_clocks_says_how_the_second_is_gone_on_with() -> None:
    view = examples.by_both_clocks()
    said = examples.answer_text(view, 90)
    assert "both clocks   read.iops of the worst job is 4.00 times that of the parent" in said
    assert "by the host's clock 3.20 times (95 %: 3.00 to 3.40) in 1 pair" in " ".join(said.split())
    assert f"              {view.resume_command}\n" in said
    assert view.host_clock is not None
    done = replace(view, host_clock=replace(view.host_clock, state=State.MEASURED))
    assert str(view.resume_command) not in examples.answer_text(done, 90)


def test_that_nothing_changed_names_no_commit() -> None:
    report = documents.no_change()
    answer = " ".join(examples.answer_text(examples.no_change(), 100).split())
    mail = RENDERERS[Format.MAIL](report)
    for text in (answer, " ".join(mail.split())):
        assert "othing in this range changed read.iops of the worst job: the new end's was 1.10 times" in text
        assert "is one of" not in text
    assert "no change of fio.read_iops" in mail
    assert "nothing in the range changed: 99.3 %" in " ".join(examples.footer_text(examples.no_change(), 100).split())
