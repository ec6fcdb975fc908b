"""The tables of a run's database: facts only, nothing that was concluded from them.

Column names are the fields of the records in :mod:`bisector.core.trial`. A list of words is JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
VERSION = 16
_RELEVANCE = """CREATE TABLE relevance (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    commits INTEGER NOT NULL,
    can_matter INTEGER NOT NULL
) STRICT"""
_COMPILERS = """CREATE TABLE compilers (
    n INTEGER PRIMARY KEY,
    command TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT"""
_BUILD_TRIES = """CREATE TABLE build_tries (
    id INTEGER PRIMARY KEY,
    command TEXT NOT NULL,
    identity TEXT NOT NULL,
    sha TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT"""
_LATENCIES = """CREATE TABLE latencies (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (id),
    kind TEXT NOT NULL,
    min_ns REAL NOT NULL,
    max_ns REAL NOT NULL,
    mean_ns REAL NOT NULL,
    stddev_ns REAL NOT NULL,
    percentiles_ns TEXT NOT NULL
) STRICT;
CREATE INDEX latencies_of_job ON latencies (job)"""
_DISKS = """CREATE TABLE disks (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (id),
    name TEXT NOT NULL,
    read_ios INTEGER NOT NULL,
    write_ios INTEGER NOT NULL,
    read_merges INTEGER NOT NULL,
    write_merges INTEGER NOT NULL,
    read_ticks_ms INTEGER NOT NULL,
    write_ticks_ms INTEGER NOT NULL,
    in_queue_ms INTEGER NOT NULL,
    util_percent REAL NOT NULL
) STRICT;
CREATE INDEX disks_of_run ON disks (run)"""
_ORIGINS = """CREATE TABLE origins (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    tool TEXT NOT NULL,
    kernel TEXT NOT NULL,
    verdict TEXT
) STRICT"""
# The two columns that are called after IOPS hold values of the metric: of older records it was no other.
_EARLY_STOPS = """CREATE TABLE early_stops (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    reason TEXT NOT NULL,
    at_s REAL NOT NULL,
    bound_iops REAL NOT NULL,
    threshold_iops REAL NOT NULL,
    why TEXT NOT NULL{}
) STRICT"""
_STOPPED_BY = {"metric": "TEXT NOT NULL DEFAULT 'read.iops'", "over": "TEXT NOT NULL DEFAULT 'worst'"}
_TAKEN = """CREATE TABLE taken (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    run_dir TEXT NOT NULL,
    n INTEGER NOT NULL
) STRICT"""
_MATTERING = """CREATE TABLE mattering (
    sha TEXT PRIMARY KEY
) STRICT"""
_NOT_CHANGED = """CREATE TABLE not_changed (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    sha TEXT NOT NULL,
    end_sha TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT"""
# What a person gave up on after the start; the skips of the start are in the row of the bisection.
_SKIPS = """CREATE TABLE skips (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    sha TEXT NOT NULL
) STRICT"""
_CONTROLS = """CREATE TABLE controls (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    host TEXT NOT NULL,
    sha TEXT NOT NULL,
    stage TEXT NOT NULL,
    trials TEXT NOT NULL,
    failed TEXT NOT NULL
) STRICT"""
# What the layers of a storage stack counted during a run: pairs of a metric's name and a value, as JSON.
_COUNTERS = {"counters": "TEXT NOT NULL DEFAULT '[]'"}
# What was given to an executor, before it was; ``n`` is the number that its trial has, if it makes one.
_SUBMITTED = """CREATE TABLE submitted (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    host TEXT NOT NULL,
    work TEXT NOT NULL,
    sha TEXT NOT NULL,
    n INTEGER
) STRICT"""
_ENDED = """CREATE TABLE ended (
    submission INTEGER PRIMARY KEY REFERENCES submitted (id),
    at TEXT NOT NULL,
    ending TEXT NOT NULL
) STRICT"""
# By which control the fault of a trial is known to be the kernel's own.
_VOUCHED = """CREATE TABLE vouched (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    control INTEGER NOT NULL REFERENCES controls (id)
) STRICT"""
_CPU_COLUMNS = {
    "user_percent": "REAL",
    "system_percent": "REAL",
    "context_switches": "INTEGER",
    "major_faults": "INTEGER",
    "depths_percent": "TEXT NOT NULL DEFAULT '[]'",
}
# What an imported record may not know.
_MAY_BE_UNKNOWN = {
    "bisection": ("repository TEXT",),
    "runs": ("other_busy_cores REAL", "steal_share REAL", "psi_some_share REAL", "clock_drift_s REAL"),
    "jobs": ("iops_stddev REAL", "clat_mean_ns REAL", "clat_p99_ns REAL"),
}


def _optional() -> str:
    """SQLite's own way to take NOT NULL from columns (sqlite.org/lang_altertable.html, section 8)."""
    updates = "; ".join(
        f"UPDATE sqlite_schema SET sql = replace(sql, '{column} NOT NULL', '{column}') "  # noqa: S608 - our names
        f"WHERE type = 'table' AND name = '{table}'"
        for table, columns in _MAY_BE_UNKNOWN.items()
        for column in columns
    )
    return f"PRAGMA writable_schema = ON; {updates}; PRAGMA writable_schema = RESET"


def _added(table: str, columns: dict[str, str]) -> str:
    return "; ".join(f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for name, kind in columns.items())


# A letter is recorded before it is tried, and what became of each attempt after it.
_MAILS = """CREATE TABLE mails (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    message_id TEXT NOT NULL,
    claim TEXT NOT NULL,
    subject TEXT NOT NULL,
    refs TEXT NOT NULL
) STRICT"""
_MAIL_EVENTS = """CREATE TABLE mail_events (
    id INTEGER PRIMARY KEY,
    mail INTEGER NOT NULL REFERENCES mails (id),
    at TEXT NOT NULL,
    outcome TEXT NOT NULL,
    recipients TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT"""
# From a version to the next one. Columns and tables are only ever added: what has no value reads as the record's
# default, and a table that is not there as one without rows.
UPGRADES = {
    1: "ALTER TABLE faults ADD COLUMN cached INTEGER NOT NULL DEFAULT 0",
    2: _RELEVANCE,
    3: "ALTER TABLE kernels ADD COLUMN modules TEXT",
    4: f"{_COMPILERS}; {_BUILD_TRIES}",
    5: "; ".join(
        (
            _optional(),
            _added("bisection", {"imported": "INTEGER NOT NULL DEFAULT 0"}),
            _added("jobs", _CPU_COLUMNS),
            _LATENCIES,
            _DISKS,
            _ORIGINS,
        )
    ),
    6: _EARLY_STOPS.format(""),
    7: f"{_MAILS}; {_MAIL_EVENTS}",
    8: _TAKEN,
    9: f"{_MATTERING}; {_NOT_CHANGED}; ALTER TABLE trials ADD COLUMN kind TEXT NOT NULL DEFAULT 'commit'; "
    "ALTER TABLE trials ADD COLUMN changed_by TEXT",
    10: "ALTER TABLE trials ADD COLUMN alone TEXT",
    11: _SKIPS,
    12: _CONTROLS,
    13: _added("runs", _COUNTERS),
    14: _added("early_stops", _STOPPED_BY),
    15: f"{_SUBMITTED}; {_ENDED}; {_VOUCHED}",
}

_LATER = (
    *(_RELEVANCE, _COMPILERS, _BUILD_TRIES, _LATENCIES, _DISKS, _ORIGINS, _MAILS, _MAIL_EVENTS, _TAKEN, _MATTERING),
    *(_NOT_CHANGED, _SKIPS, _CONTROLS, _SUBMITTED, _ENDED, _VOUCHED),
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
    created_at TEXT NOT NULL,
    imported INTEGER NOT NULL DEFAULT 0
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
    alone TEXT
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
    {", ".join(f"{name} {kind}" for name, kind in _COUNTERS.items())}
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
    {", ".join(f"{name} {kind}" for name, kind in _CPU_COLUMNS.items())}
) STRICT;
CREATE INDEX jobs_of_run ON jobs (run);

{_EARLY_STOPS.format("".join(f", {name} {kind}" for name, kind in _STOPPED_BY.items()))};

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
    pid INTEGER NOT NULL
) STRICT;
"""

RUN = Schema(APPLICATION_ID, VERSION, TABLES, UPGRADES, "--run-dir names a directory that `bisector start` made")
