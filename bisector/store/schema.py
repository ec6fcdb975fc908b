"""The tables of a run's database: facts only, nothing that was concluded from them.

Column names are the fields of the records in :mod:`bisector.core.trial` and :mod:`bisector.core.subject`. A list of
words is JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bisector.store.later_tables import (
    AGAIN,
    BUDGETS,
    BUILD_TRIES,
    BUILT_WITH,
    CLEAR_OF,
    CLOCK,
    COMPARISON,
    COMPILERS,
    CONTROLS,
    COUNTERS,
    CPU_COLUMNS,
    DISKS,
    EARLIER,
    EARLY_STOPS,
    ENDED,
    ERAS,
    FILL,
    GUEST_SEED,
    KERNEL_CHECKS,
    LATENCIES,
    MAIL_EVENTS,
    MAILS,
    MATTERING,
    NOT_CHANGED,
    ORIGINS,
    OUT_OF_TIME,
    OUTCOMES,
    OWN_FILE,
    PLACE,
    PROCESS,
    QUEUES,
    RELEVANCE,
    RUN_LENGTHS,
    RUNTIME,
    SETUP,
    SINCE_BOOT,
    SKIPS,
    SPEED,
    STEADY,
    STOPPED_BY,
    SUBMITTED,
    TAKEN,
    VOUCHED,
    added,
    optional,
)


@dataclass(frozen=True, slots=True)
class Schema:
    """What tells one kind of database from others: its number, its version, its tables, the way from older versions.

    ``named_by`` is what a person types to name such a file.
    """

    application_id: int
    version: int
    tables: str
    upgrades: Mapping[int, str]
    named_by: str


APPLICATION_ID = 0x62736374  # "bsct", at offset 68 of the file (sqlite.org/fileformat.html)
VERSION = 28

# From a version to the next one. Columns and tables are only ever added: what has no value reads as the record's
# default, and a table that is not there as one without rows.
UPGRADES = {
    1: "ALTER TABLE faults ADD COLUMN cached INTEGER NOT NULL DEFAULT 0",
    2: RELEVANCE,
    3: "ALTER TABLE kernels ADD COLUMN modules TEXT",
    4: f"{COMPILERS}; {BUILD_TRIES}",
    5: "; ".join(
        (
            optional(),
            added("bisection", {"imported": "INTEGER NOT NULL DEFAULT 0"}),
            added("jobs", CPU_COLUMNS),
            LATENCIES,
            DISKS,
            ORIGINS,
        )
    ),
    6: EARLY_STOPS.format(""),
    7: f"{MAILS}; {MAIL_EVENTS}",
    8: TAKEN,
    9: f"{MATTERING}; {NOT_CHANGED}; ALTER TABLE trials ADD COLUMN kind TEXT NOT NULL DEFAULT 'commit'; "
    "ALTER TABLE trials ADD COLUMN changed_by TEXT",
    10: "ALTER TABLE trials ADD COLUMN alone TEXT",
    11: SKIPS,
    12: CONTROLS,
    13: added("runs", COUNTERS),
    14: added("early_stops", STOPPED_BY),
    15: f"{SUBMITTED}; {ENDED}; {VOUCHED}",
    16: added("trials", SETUP),
    17: f"{COMPARISON}; {added('submitted', PLACE)}",
    18: f"{added('arms', OWN_FILE)}; {added('build_tries', BUILT_WITH)}",
    19: BUDGETS,
    20: "; ".join(
        (
            added("states", OUT_OF_TIME),
            added("mattering", AGAIN),
            EARLIER,
            added("trials", FILL),
            added("early_stops", CLEAR_OF),
        )
    ),
    21: f"{added('runs', SPEED)}; {KERNEL_CHECKS}",
    22: "; ".join((ERAS, added("submitted", PROCESS), added("ended", PROCESS))),
    23: added("trials", QUEUES),
    24: "; ".join(added(table, SINCE_BOOT) for table in ("submitted", "ended", "states")),
    25: added("eras", CLOCK),
    26: added("trials", GUEST_SEED),
    27: f"{added('jobs', STEADY)}; {added('trials', RUNTIME)}; {RUN_LENGTHS}; {added('earlier', OUTCOMES)}",
}

_LATER = (
    *(RELEVANCE, COMPILERS, BUILD_TRIES, LATENCIES, DISKS, ORIGINS, MAILS, MAIL_EVENTS, TAKEN, MATTERING),
    *(NOT_CHANGED, SKIPS, CONTROLS, SUBMITTED, ENDED, VOUCHED, COMPARISON, added("submitted", PLACE | PROCESS)),
    *(added("arms", OWN_FILE), added("build_tries", BUILT_WITH), BUDGETS, added("mattering", AGAIN), EARLIER),
    *(added("earlier", OUTCOMES), RUN_LENGTHS, KERNEL_CHECKS, ERAS, added("submitted", SINCE_BOOT)),
    *(added("ended", PROCESS | SINCE_BOOT), added("eras", CLOCK)),
)

TABLES = f"""
{"; ".join(_LATER)};

CREATE TABLE bisection (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    repository TEXT,
    old_rev TEXT NOT NULL,
    old_sha TEXT NOT NULL,
    new_rev TEXT NOT NULL,
    new_sha TEXT NOT NULL,
    term_old TEXT NOT NULL,
    term_new TEXT NOT NULL,
    direction TEXT NOT NULL,
    paths TEXT NOT NULL,
    first_parent INTEGER NOT NULL,
    skips TEXT NOT NULL,
    settings TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE trials (
    n INTEGER PRIMARY KEY,
    sha TEXT NOT NULL,
    tree TEXT NOT NULL,
    subject TEXT NOT NULL,
    committed_at TEXT NOT NULL,
    started_at TEXT NOT NULL,
    host TEXT NOT NULL,
    stage TEXT NOT NULL,
    build_s REAL NOT NULL,
    boot_s REAL NOT NULL,
    storage_s REAL NOT NULL,
    workload_s REAL NOT NULL,
    total_s REAL NOT NULL,
    same_kernel_as TEXT,
    kind TEXT NOT NULL DEFAULT 'commit',
    changed_by TEXT,
    {", ".join(f"{name} {kind} NOT NULL" for name, kind in SETUP.items())},
    {", ".join(f"{name} {kind}" for name, kind in (FILL | QUEUES | GUEST_SEED | RUNTIME).items())}
) STRICT;

CREATE TABLE faults (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    stage TEXT NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    tail TEXT NOT NULL,
    cached INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE kernels (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    image TEXT NOT NULL,
    config TEXT NOT NULL,
    release TEXT NOT NULL,
    build_id TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    key TEXT NOT NULL,
    toolchain TEXT NOT NULL,
    quirks TEXT NOT NULL,
    unmet TEXT NOT NULL,
    cached INTEGER NOT NULL,
    build_s REAL NOT NULL,
    modules TEXT
) STRICT;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trials (n),
    name TEXT NOT NULL,
    started_at TEXT NOT NULL,
    duration_s REAL NOT NULL,
    other_busy_cores REAL,
    steal_share REAL,
    psi_some_share REAL,
    clock_drift_s REAL,
    {", ".join(f"{name} {kind}" for name, kind in (COUNTERS | SPEED).items())}
) STRICT;
CREATE INDEX runs_of_trial ON runs (trial);

CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    name TEXT NOT NULL,
    direction TEXT NOT NULL,
    iops_mean REAL NOT NULL,
    iops_stddev REAL,
    bw_kib_s REAL NOT NULL,
    clat_mean_ns REAL,
    clat_p99_ns REAL,
    total_ios INTEGER NOT NULL,
    runtime_ms INTEGER NOT NULL,
    error INTEGER NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind in (CPU_COLUMNS | STEADY).items())}
) STRICT;
CREATE INDEX jobs_of_run ON jobs (run);

{EARLY_STOPS.format("".join(f", {name} {kind}" for name, kind in (STOPPED_BY | CLEAR_OF).items()))};

CREATE TABLE caches (
    run INTEGER NOT NULL REFERENCES runs (id),
    moment TEXT NOT NULL CHECK (moment IN ('before', 'after')),
    policy TEXT NOT NULL,
    mode TEXT NOT NULL,
    used_blocks INTEGER NOT NULL,
    total_blocks INTEGER NOT NULL,
    dirty_blocks INTEGER NOT NULL,
    read_hits INTEGER NOT NULL,
    read_misses INTEGER NOT NULL,
    write_hits INTEGER NOT NULL,
    write_misses INTEGER NOT NULL,
    demotions INTEGER NOT NULL,
    promotions INTEGER NOT NULL,
    PRIMARY KEY (run, moment)
) STRICT;

CREATE TABLE artifacts (
    id INTEGER PRIMARY KEY,
    trial INTEGER NOT NULL REFERENCES trials (n),
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX artifacts_of_trial ON artifacts (trial);

CREATE TABLE infra_faults (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    sha TEXT NOT NULL,
    stage TEXT NOT NULL,
    host TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE states (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    pid INTEGER NOT NULL,
    {", ".join(f"{name} {kind}" for name, kind in (OUT_OF_TIME | SINCE_BOOT).items())}
) STRICT;
"""

RUN = Schema(APPLICATION_ID, VERSION, TABLES, UPGRADES, "--run-dir names a directory that `bisector start` made")
