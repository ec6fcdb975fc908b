"""What commands say beforehand of a search: of the range that was typed, by what this host took earlier."""

from pathlib import Path

from bisector.bisect import session
from bisector.campaign.equipment import KernelEquality
from bisector.commands.output import note
from bisector.config import Settings
from bisector.core.subject import Relevance
from bisector.executor.at_once import guests_at_once
from bisector.executor.local import kernel_builder
from bisector.git.ranges import Range, graph_of_range
from bisector.git.repository import Repository
from bisector.git.trees import Trees
from bisector.host.load import host_id
from bisector.plan.experience import Experience, experience
from bisector.plan.forecast import Forecast, ForecastRequest, forecast
from bisector.store.rundir import Index
from bisector.vm.accelerator import could_count

SEARCHES = 30


def forecast_of(asked: session.BisectRequest, searches: int = SEARCHES, seed: int = 1, hosts: int = 1) -> Forecast:
    """What to expect of a search, from what all known runs took and read on this host; raises as ``start`` does."""
    with Repository.open(asked.repository) as repository:
        wanted, settings, _ = session.checked(repository, asked)
        known = experience(settings, host_id(), [Path(entry.run_dir) for entry in Index().entries()])
        for text in known.unreadable:
            note(f"bisector: passed over {text}")
        graph, _ = graph_of_range(repository, wanted)
        relevance = _relevance(repository, wanted, settings, known)
        told = tuple(session.told_beforehand(repository, wanted, settings))
    counts = could_count(settings.machine, settings.storage)
    simulated = ForecastRequest(
        wanted,
        graph,
        settings,
        settings.bisect.strategy,
        searches,
        seed,
        asked.budget_s,
        hosts,
        guests_at_once(settings),
        told,
        counts,
    )
    return forecast(simulated, known, relevance)


def _relevance(repository: Repository, wanted: Range, settings: Settings, known: Experience) -> Relevance | None:
    """How many commits can matter, when both ends were built before and their builds are kept."""
    kernels = [known.kernels.get(end.sha) for end in (wanted.old, wanted.new)]
    if kernels[0] is None or kernels[1] is None:
        return None
    equality = KernelEquality(Trees(repository), kernel_builder(settings.kernel), wanted.first_parent)
    mattering = equality.mattering(wanted, kernels[0], kernels[1])
    return mattering.relevance if mattering is not None else None
