"""What ``bisector status``, ``table``, ``test`` and ``baselines`` print with ``--json``.

Seconds and bytes are plain numbers, and so are values of the metric that decides, in its unit. Strings are as git, the
kernel and fio gave them (not cleaned for a terminal). :mod:`bisector.status.document_of` makes these records.
"""

from typing import Annotated, Literal, TypeAlias

from bisector.analysis.comparison import Outcome
from bisector.core.figures import Contention, DiskFigures, EarlyStop, JobFigures
from bisector.core.guest_time import GuestTime
from bisector.core.json_document import SCHEMA, DecidingMetric, NamedCommit, Record
from bisector.core.subject import Kernel, Kind, Relevance, Setup
from bisector.core.trial import Artifact, Control, DiskQueue, Era, Fault, Fill, Origin, Stage, Taken
from bisector.core.verdict import Direction, State, Strategy, Terms, Verdict
from bisector.status.host_clock import Factor
from bisector.status.view import (
    EffectView,
    HostThreshold,
    InfraFaultView,
    LevelView,
    OptionChange,
)

Schema: TypeAlias = Annotated[Literal[2], SCHEMA]
Objective: TypeAlias = Annotated[DecidingMetric, "what decides"]
Threshold: TypeAlias = Annotated[float | None, "value between the two sides; `null` until both ends are measured"]
Clock: TypeAlias = Annotated[GuestTime | None, "what makes the guests' time pass; `null` where others measured"]
SeenAgain: TypeAlias = Annotated[
    str | None,
    "how the verdicts compare with those by the metric that `--metric` names, one sentence; `null` without that option",
]


class CacheState(Record, frozen=True, kw_only=True):
    """Counters of dm-cache, as `dmsetup status` gives them."""

    policy: Annotated[str, "replacement policy"]
    mode: Annotated[str, "`writethrough`, `writeback` or `passthrough`"]
    used_blocks: Annotated[int, "cache blocks in use"]
    total_blocks: Annotated[int, "cache blocks in all"]
    dirty_blocks: Annotated[int, "cache blocks that differ from the origin"]
    read_hits: Annotated[int, "reads found in the cache"]
    read_misses: Annotated[int, "reads not found in it"]
    write_hits: Annotated[int, "writes found in the cache"]
    write_misses: Annotated[int, "writes not found in it"]
    demotions: Annotated[int, "blocks removed from the cache"]
    promotions: Annotated[int, "blocks moved to the cache"]
    full: Annotated[bool, "whether every cache block is in use, so that the next promotion has to demote"]


class CacheStates(Record, frozen=True, kw_only=True):
    """The cache before and after a run."""

    before: Annotated[CacheState | None, "before the run; `null` for a stack without a cache"]
    after: Annotated[CacheState | None, "after it; `null` for a stack without a cache"]


class PhaseRun(Record, frozen=True, kw_only=True):
    """A run of the workload; where others measured it, `contention` and `clock_drift_s` are `null`."""

    name: Annotated[str, "name of its phase, such as `empty` or `full`; `empty@2` is its second round"]
    started_at: Annotated[str, "time"]
    duration_s: Annotated[float, "seconds"]
    jobs: Annotated[tuple[JobFigures, ...], "what fio reported for each job and direction"]
    cache: Annotated[CacheStates, "the cache before and after the run"]
    counters: Annotated[
        dict[str, float],
        "what the layers of the stack counted during the run, and of a command what it took and printed: a value for "
        "each metric",
    ]
    contention: Annotated[Contention | None, "what else the host was doing; `null` if nobody measured it"]
    clock_drift_s: Annotated[
        float | None, "seconds that the guest's clock gained on the host's; `null` if nobody measured it"
    ]
    disks: Annotated[tuple[DiskFigures, ...], "what fio reported for each disk; may be empty"]
    stopped_early: Annotated[
        EarlyStop | None,
        "why the run was stopped before its time, `null` for a full run; figures of a run that was stopped cannot be "
        "compared with those of full runs",
    ]


class JudgedTrial(Record, frozen=True, kw_only=True):
    """A trial and its verdict."""

    n: Annotated[int, "number of the trial, from 1"]
    sha: Annotated[str, "commit; of an import as short as it was recorded, or the kernel's name"]
    subject: Annotated[str, "subject of the commit"]
    committed_at: Annotated[str, "time of the commit"]
    verdict: Annotated[str, "in your terms, or `skip`, `weak` (measured again) or `measured` (no side yet)"]
    side: Annotated[Verdict, "the same, whatever the terms"]
    stage: Annotated[Stage, "how far it came"]
    value: Annotated[float | None, "value of the judged run by the `objective`; `null` without one"]
    reason: Annotated[str, "one sentence"]
    fault: Annotated[Fault | None, "fault of the kernel, if it has one"]
    runs: Annotated[tuple[PhaseRun, ...], "one for each phase"]
    fill: Annotated[Fill, "how runs that fill a cache were to end: after their `whole` length, or once it is settled"]
    build_s: Annotated[float, "seconds of the build"]
    boot_s: Annotated[float, "seconds of the guest's boot"]
    storage_s: Annotated[float, "seconds of making the storage stack"]
    workload_s: Annotated[float, "seconds of the runs"]
    total_s: Annotated[float, "seconds of the whole trial"]
    ours_s: Annotated[float, "seconds of everything else"]
    kernel: Annotated[Kernel | None, "the kernel; `null` if there is none, or others measured it"]
    kind: Annotated[
        Kind,
        "`reverted` or `picked`: an end without the commit `changed_by`, or with it; `patched`: a commit with a patch "
        "on top; then its `sha` is in no branch; `image`: a kernel that somebody else built",
    ]
    changed_by: Annotated[
        str | None, "commit that was reverted or picked, or that is the patch; of a patch file its SHA-256"
    ]
    probability: Annotated[float | None, "that this kernel is on the new side; `null` where readings are not weighed"]
    same_kernel_as: Annotated[str | None, "commit whose equal kernel was measured instead"]
    same_sources: Annotated[bool, "whether it was not even built, because it differs in no file that a build reads"]
    doubted: Annotated[bool, "whether its fault may be the host's, because an end that had worked failed, too"]
    artifacts: Annotated[tuple[Artifact, ...], "files of the trial"]
    host: Annotated[str, "name of the host that measured"]
    era: Annotated[Era | None, "what figures of that host depended on then; `null` where that is not known"]
    started_at: Annotated[str, "time"]
    setup: Annotated[Setup, "what it was measured on"]
    queues: Annotated[tuple[DiskQueue, ...], "how the guest's kernel queued requests, for each disk of the stack"]
    runtime_s: Annotated[float, "seconds that each run was asked to last; 0 where that is not known"]
    guest_seed: Annotated[int, "where the guest's time is counted, seed of a small shift of its time and pages"]
    taken_from: Annotated[Taken | None, "where it was measured; `null` for this run"]
    origin: Annotated[Origin | None, "of an import who measured it, else `null`"]


class TestedCommit(JudgedTrial, frozen=True, kw_only=True):
    """What ``bisector test --json`` prints."""

    run_dir: Annotated[str, "path of the directory that has its files"]


class Baseline(Record, frozen=True, kw_only=True):
    """A disk alone, under the kernel of a commit."""

    disk: Annotated[str, "name of the disk"]
    setup: Annotated[Setup, "what it was measured on"]
    sha: Annotated[str, "commit"]
    subject: Annotated[str, "subject of the commit"]
    committed_at: Annotated[str, "time of the commit"]
    host: Annotated[str, "name of the host that measured"]
    started_at: Annotated[str, "time"]
    run: Annotated[PhaseRun, "its run"]
    artifacts: Annotated[tuple[Artifact, ...], "its files"]
    origin: Annotated[Origin | None, "of an import who measured it, else `null`"]


class ConfigDifference(Record, frozen=True, kw_only=True):
    """How a commit's effective .config differs from that of one of its parents."""

    parent: Annotated[str, "hash of the parent"]
    options: Annotated[tuple[OptionChange, ...], "every option that differs"]


class FirstNew(NamedCommit, frozen=True, kw_only=True):
    """The first commit on the new side."""

    config_changes: Annotated[
        tuple[ConfigDifference, ...], "how its effective .config differs from that of each parent on record"
    ]


class LikelyCommit(Record, frozen=True, kw_only=True):
    """A commit and how likely it is the first new one."""

    sha: Annotated[str, "hash"]
    probability: Annotated[float, "probability that it is"]


class Budget(Record, frozen=True, kw_only=True):
    """For how long a run may measure, by the last `--budget`."""

    budget_s: Annotated[float, "seconds of measuring that it allows, from when it was given"]
    spent_s: Annotated[float, "seconds that were spent since then"]
    is_over: Annotated[bool, "whether the search ended because no further trial would end in time"]


class ByHostsClock(Record, frozen=True, kw_only=True):
    """An answer of counted time, measured once more by the host's clock: the commit beside its parent."""

    parent: Annotated[str | None, "hash of the parent; `null` where nobody tells it"]
    by_instructions: Annotated[Factor | None, "how large the change is in counted time"]
    by_host: Annotated[Factor | None, "how large it is by the host's clock; `null` until a pair counts"]
    pairs: Annotated[int, "number of pairs that count"]
    pairs_needed: Annotated[int | None, "number of pairs that a change of its size takes to show; `null` of too many"]
    outcome: Annotated[Outcome | None, "what is said of the commit by the host's clock; `null` until a pair counts"]
    state: Annotated[State | None, "how that comparison stands; `null` before it is begun"]
    sentence: Annotated[str, "all of it in a sentence"]
    run_dir: Annotated[str, "path of the directory of the comparison, which is a run of its own"]


class Status(Record, frozen=True, kw_only=True):
    """What ``bisector status --json`` prints."""

    schema: Schema = 2
    state: Annotated[
        State, "how it stands; `imported` for an import without an answer, `measured` for trials of `bisector test`"
    ]
    message: Annotated[str, "one sentence"]
    repository: Annotated[str | None, "path; `null` for an import without one"]
    terms: Annotated[Terms, "the words for the two sides"]
    direction: Annotated[Direction | None, "of the change; `null` until both ends are measured"]
    objective: Objective
    threshold: Threshold
    threshold_origin: Annotated[str | None, "where the threshold comes from; `null` without one"]
    host_thresholds: Annotated[
        tuple[HostThreshold, ...], "that of each host that measured both ends; `threshold` is that of the first"
    ]
    old: Annotated[NamedCommit, "the old end"]
    new: Annotated[NamedCommit, "the new end"]
    first_fixed: Annotated[
        FirstNew | None, "first commit on the new side, whatever that is called; `null` until it is found"
    ]
    candidates: Annotated[
        tuple[str, ...],
        "commits that can be the answer; with `bayes` the fewest that have 99 % together, likeliest first",
    ]
    strategy: Annotated[
        Strategy,
        "who chooses; the keys from `probability` to `trials_left` are `null` with `git`, and until both ends are "
        "measured",
    ]
    probability: Annotated[float | None, "of the first of `candidates`, if one commit made the change"] = None
    candidate_probabilities: Annotated[tuple[float, ...] | None, "one for each of `candidates`"] = None
    contradictions: Annotated[int | None, "number of readings that contradict the likeliest commit"] = None
    expected_contradictions: Annotated[float | None, "number that the noise makes usual"] = None
    one_change: Annotated[bool | None, "whether one change can explain the readings"] = None
    without_suspects: Annotated[LikelyCommit | None, "the likeliest commit if no paths were suspected"] = None
    confirmed: Annotated[tuple[Kind, ...] | None, "how the likeliest commit was confirmed; may be empty"] = None
    effect: Annotated[
        EffectView | None, "how large the change of the likeliest commit is; `null` before both its sides were read"
    ] = None
    no_change: Annotated[bool | None, "whether it is known that nothing in the range made the ends differ"] = None
    no_change_probability: Annotated[float | None, "that nothing in the range made the ends differ"] = None
    trials_left: Annotated[int | None, "expected number of further trials; 0 at the end"] = None
    skips_in_the_way: Annotated[tuple[str, ...], "skipped commits that keep the candidates apart"]
    relevance: Annotated[Relevance | None, "how many commits matter; `null` until both ends are built"]
    levels: Annotated[
        tuple[LevelView, ...],
        "values between which the readings lie, the worst level first; two if there is one change",
    ]
    other_steps: Annotated[tuple[float, ...], "values of the steps between levels that this run does not look for"]
    next_step_command: Annotated[str | None, "what to type to look for them; `null` if there are none"]
    seen_again: SeenAgain
    evaluations: Annotated[int, "number of trials"]
    skipped: Annotated[int, "number of trials that were skipped"]
    weak: Annotated[int, "number of trials of weak evidence"]
    reused: Annotated[int, "number of commits with the kernel of one that was measured"]
    trials: Annotated[tuple[JudgedTrial, ...], "in the order of measuring"]
    baselines: Annotated[tuple[Baseline, ...], "the disks alone"]
    clock: Clock
    infra_faults: Annotated[tuple[InfraFaultView, ...], "infrastructure errors, which are never a verdict"]
    controls: Annotated[tuple[Control, ...], "ends that were tried again because of the faults of other commits"]
    host_clock: Annotated[
        ByHostsClock | None, "the answer by the host's clock, too; `null` without one, or where nobody asked for it"
    ] = None
    budget: Annotated[Budget | None, "for how long it may be measured; `null` if for as long as it takes"] = None
    started_at: Annotated[str, "time"]
    ended_at: Annotated[str | None, "time; `null` while it can go on"]
    run_dir: Annotated[str, "path of the run directory"]
    log: Annotated[str | None, "path of git's bisect log; `null` until git is asked"]
    resume_command: Annotated[str | None, "what to type to go on; `null` if there is nothing to do"]


class VerdictTable(Record, frozen=True, kw_only=True):
    """What ``bisector table --json`` prints."""

    schema: Schema = 2
    objective: Objective
    threshold: Threshold
    seen_again: SeenAgain
    clock: Clock
    trials: Annotated[tuple[JudgedTrial, ...], "in the order of measuring"]


class Baselines(Record, frozen=True, kw_only=True):
    """What ``bisector baselines --json`` prints."""

    schema: Schema = 2
    run_dir: Annotated[str, "path of the run directory"]
    baselines: Annotated[tuple[Baseline, ...], "the disks alone"]
