"""The keys of ``bisector status --json``, in its order; docs/json.md is made from them, and tests hold them."""

import dataclasses

from bisector.core.cell import Setup
from bisector.core.commit import Relevance
from bisector.core.figures import CacheStatus, Contention, CpuUse, DiskFigures, EarlyStop, JobFigures, Latency
from bisector.core.json_keys import Key
from bisector.core.kernel import Kernel
from bisector.core.trial import Artifact, Control, Fault, Origin, Taken

_COMMIT = ("sha", "subject", "committed_at")

_RUN = (
    Key(".name", "name of its phase, such as `empty` or `full`"),
    Key(".started_at", "time"),
    Key(".duration_s", "seconds"),
    Key(".jobs", "what fio reported for each job and direction", JobFigures),
    Key(".jobs[].latencies", "of each kind: `slat`, `clat`, `lat`", Latency),
    Key(".jobs[].cpu", "CPU use of the job, or `null`", CpuUse),
    Key(".cache", "the cache before and after the run, each `null` for a stack without one",
        more=("before", "after")),
    Key(".cache.before", "counters of dm-cache; `full` is whether it was full", CacheStatus, ("full",)),
    Key(".cache.after", "likewise", CacheStatus, ("full",)),
    Key(".counters", "what the layers of the stack counted during the run: a value for each metric", free=True),
    Key(".contention", "what else the host was doing, or `null` if nobody measured it", Contention),
    Key(".clock_drift_s", "seconds that the guest's clock gained on the host's, or `null`"),
    Key(".disks", "what fio reported for each disk; may be empty", DiskFigures),
    Key(".stopped_early", "why the run was stopped before its time (`reason` is `above` or `not above`), or `null` "
        "for a "
        "full run; figures of a run that was stopped cannot be compared with those of full runs", EarlyStop),
)  # fmt: skip


def _of(path: str, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    return tuple(dataclasses.replace(key, path=path + key.path) for key in keys)


TRIAL: tuple[Key, ...] = (
    Key("n", "number of the trial, from 1"),
    Key("sha", "commit; of an import as short as it was recorded, or the kernel's name"),
    Key("subject", "subject of the commit"),
    Key("committed_at", "time"),
    Key("verdict", "in your terms, or `skip`, `weak` (measured again) or `measured` (no side yet)"),
    Key("side", "the same as `old`, `new`, `skip`, `weak` or `measured`, whatever the terms"),
    Key("stage", "how far it came: `checkout`, `config`, `build`, `boot`, `storage`, `workload`, `done`"),
    Key("value", "value of the judged run by the `objective`, or `null`"),
    Key("reason", "one sentence"),
    Key("fault", "fault of the kernel, or `null`", Fault),
    Key("runs", "one for each phase"),
    *_of("runs[]", _RUN),
    Key("build_s", "seconds of the build"),
    Key("boot_s", "seconds of the guest's boot"),
    Key("storage_s", "seconds of making the storage stack"),
    Key("workload_s", "seconds of the runs"),
    Key("total_s", "seconds of the whole trial"),
    Key("ours_s", "seconds of everything else"),
    Key("kernel", "the kernel, or `null`", Kernel),
    Key("kind", "`commit`; or `reverted` or `picked`: an end without the commit `changed_by`, or with it, whose "
        "`sha` is in "
        "no branch"),
    Key("changed_by", "commit that was reverted or picked, or `null`"),
    Key("probability", "that this kernel is on the new side, or `null`"),
    Key("same_kernel_as", "commit whose equal kernel was measured instead, or `null`"),
    Key("same_sources", "whether it was not even built, because it differs in no file that a build reads"),
    Key("doubted", "whether its fault may be the host's, because an end that had worked failed, too"),
    Key("artifacts", "files of the trial, relative to `run_dir`", Artifact),
    Key("host", "name of the host that measured"),
    Key("started_at", "time"),
    Key("setup", "what it was measured on: the storage stack and the workload; empty in an import", Setup),
    Key("taken_from", "run that measured it, or `null` for this one", Taken),
    Key("origin", "of an import: the tool, the kernel's name, and the verdict of those who measured; else `null`",
        Origin),
)  # fmt: skip

STATUS: tuple[Key, ...] = (
    Key("schema", "counts up when a key is renamed, removed or changes its meaning; new keys may come at any time"),
    Key("state", "`running`, `found`, `narrowed`, `failed`, `stopped`, or `imported` for an import without an "
        "answer"),
    Key("message", "one sentence"),
    Key("repository", "path; `null` for an import without one"),
    Key("terms", "the words for the two sides", more=("old", "new")),
    Key("direction", "`improvement` or `regression`; `null` until both ends are measured"),
    Key("objective", "the [metric](metrics.md) that decides, what several jobs amount to, the unit of its values, "
        "and whether "
        "a `higher` or a `lower` value is better", more=("metric", "over", "unit", "better")),
    Key("threshold", "value between the two sides; `null` until both ends are measured"),
    Key("threshold_origin", "where the threshold comes from, or `null`"),
    Key("old", "the old end", more=_COMMIT),
    Key("new", "the new end", more=_COMMIT),
    Key("first_fixed", "first commit on the new side, whatever that is called, or `null`",
        more=(*_COMMIT, "config_changes")),
    Key("first_fixed.config_changes", "how its effective .config differs from that of each parent on record",
        more=("parent", "options")),
    Key("first_fixed.config_changes[].options", "every option that differs", more=("option", "parent", "child")),
    Key("candidates", "commits that can be the answer; with `bayes` the fewest that have 99 % together, likeliest "
        "first"),
    Key("strategy", "`bayes` or `git`; the keys from `probability` to `trials_left` are `null` with `git`, and "
        "until both "
        "ends are measured"),
    Key("probability", "of the first of `candidates`, if one commit made the change"),
    Key("candidate_probabilities", "one for each of `candidates`"),
    Key("contradictions", "number of readings that contradict the likeliest commit"),
    Key("expected_contradictions", "number that the noise makes usual"),
    Key("one_change", "whether one change can explain the readings"),
    Key("without_suspects", "the likeliest commit if no paths were suspected", more=("sha", "probability")),
    Key("confirmed", "how the likeliest commit was confirmed: `reverted`, `picked`, both or none"),
    Key("trials_left", "expected number of further trials; 0 at the end"),
    Key("skips_in_the_way", "skipped commits that keep the candidates apart"),
    Key("relevance", "size of the range, and how many of its commits touch what its ends were built from; `null` "
        "until both "
        "ends are built", Relevance),
    Key("levels", "values between which the readings lie, the worst level first; two if there is one change",
        more=("low", "high", "trials")),
    Key("other_steps", "values of the steps between levels that this run does not look for"),
    Key("next_step_command", "what to type to look for them, or `null`"),
    Key("seen_again", "how the verdicts compare with those by the metric that `--metric` names, in a sentence; `null` "
        "without that option"),
    Key("evaluations", "number of trials"),
    Key("skipped", "number of trials that were skipped"),
    Key("weak", "number of trials of weak evidence"),
    Key("reused", "number of commits with the kernel of one that was measured"),
    Key("trials", "in the order of measuring; their keys are [below](#a-trial)"),
    Key("baselines", "a disk alone, under the kernel of `sha`; `run` is as in `trials[].runs`, `setup` as in `trials`",
        more=("disk", "setup", *_COMMIT, "host", "started_at", "run", "artifacts", "origin")),
    Key("infra_faults", "infrastructure errors, which are never a verdict", more=("at", "sha", "host", "message")),
    Key("controls", "an end that was tried again, through `stage`, because of the faults of `trials`; `failed` is "
        "empty if it "
        "worked, else those faults are doubted", Control),
    Key("started_at", "time"),
    Key("ended_at", "time, or `null`"),
    Key("run_dir", "path of the run directory"),
    Key("log", "path of git's bisect log, or `null`"),
    Key("resume_command", "what to type to go on, or `null`"),
)  # fmt: skip
