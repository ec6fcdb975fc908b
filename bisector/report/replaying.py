"""The search once more, from the record alone: what was believed after each trial."""

from collections.abc import Iterator
from dataclasses import replace

from bisector.analysis.verdicts import Judging
from bisector.config import options
from bisector.core.errors import BisectorError
from bisector.core.printable import clean
from bisector.core.trial import Trial
from bisector.core.verdict import Verdict
from bisector.git.repository import Repository
from bisector.report.document import span
from bisector.report.narrowing import Belief, Narrowing, narrowing
from bisector.status import from_record
from bisector.status.conclusion import Standing
from bisector.status.evidence import Case
from bisector.store.store import Store


def narrowed(store: Store) -> Narrowing | None:
    """None where there was no such search: by git, of an imported run, before both ends, without the repository."""
    asked = store.bisection()
    settings = options.from_json(asked.settings)
    judging = Judging(settings, store.trials(), asked.old_sha, asked.new_sha)
    if asked.imported or asked.repository is None or not from_record.believes(asked, judging):
        return None
    terms = judging.terms
    title = f"{span(asked.old_rev, asked.new_rev)}: where the first {clean(terms.new)} commit is believed to be"
    words = tuple((verdict, clean(terms.word(verdict))) for verdict in Verdict)
    try:
        with Repository.open(asked.repository) as repository:
            case = from_record.case(repository, asked, judging, store)
            return narrowing(title, _beliefs(case), case.search.rules.target, words)
    except BisectorError:
        return None


def _beliefs(whole: Case) -> Iterator[Belief]:
    """With the trials up to each one, and all that is known beside them."""
    judging = whole.judging
    for count, (n, trial) in enumerate(judging.trials, 1):
        until = replace(judging, trials=judging.trials[:count])
        if until.sound(judging.old) and until.sound(judging.new):
            *_, (_, _, judged) = until.judged_trials()
            yield Belief(n, _number(whole, trial), judged.verdict, Standing(replace(whole, judging=until)).belief)


def _number(case: Case, trial: Trial) -> int | None:
    return case.ground.numbers.get(trial.changed_by or trial.commit.sha)
