"""Tables and columns that came after the first version of a run's database: for new files and for upgrades alike."""

RELEVANCE = """CREATE TABLE relevance (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    commits INTEGER NOT NULL,
    can_matter INTEGER NOT NULL
) STRICT"""
COMPILERS = """CREATE TABLE compilers (
    n INTEGER PRIMARY KEY,
    command TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT"""
BUILD_TRIES = """CREATE TABLE build_tries (
    id INTEGER PRIMARY KEY,
    command TEXT NOT NULL,
    identity TEXT NOT NULL,
    sha TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT"""
LATENCIES = """CREATE TABLE latencies (
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
DISKS = """CREATE TABLE disks (
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
ORIGINS = """CREATE TABLE origins (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    tool TEXT NOT NULL,
    kernel TEXT NOT NULL,
    verdict TEXT
) STRICT"""
# The two columns that are called after IOPS hold values of the metric: of older records it was no other.
EARLY_STOPS = """CREATE TABLE early_stops (
    run INTEGER PRIMARY KEY REFERENCES runs (id),
    reason TEXT NOT NULL,
    at_s REAL NOT NULL,
    bound_iops REAL NOT NULL,
    threshold_iops REAL NOT NULL,
    why TEXT NOT NULL{}
) STRICT"""
STOPPED_BY = {"metric": "TEXT NOT NULL DEFAULT 'read.iops'", "over": "TEXT NOT NULL DEFAULT 'worst'"}
# Of a run that was clear of another commit's, too, which one, and by what factor at least.
CLEAR_OF = {"against": "TEXT NOT NULL DEFAULT ''", "apart": "REAL"}
# What the figures of a trial depended on beside its kernel.
ERAS = """CREATE TABLE eras (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    digest TEXT NOT NULL,
    accelerator TEXT NOT NULL,
    qemu TEXT NOT NULL,
    host_kernel TEXT NOT NULL,
    cpu TEXT NOT NULL,
    cores INTEGER NOT NULL,
    memory_gib INTEGER NOT NULL,
    image TEXT NOT NULL,
    disks TEXT NOT NULL,
    boot TEXT NOT NULL
) STRICT"""
# What made the guest's time pass.
CLOCK = {"clock": "TEXT NOT NULL DEFAULT 'host'"}
# How the runs that fill a cache were to end.
FILL = {"fill": "TEXT NOT NULL DEFAULT 'whole'"}
# A kernel that was built once more, apart from all others, is the one that was measured; or why that cannot be told.
KERNEL_CHECKS = """CREATE TABLE kernel_checks (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    sha TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    why_not TEXT NOT NULL
) STRICT"""
# How fast the host's cores were before a run and after it.
SPEED = {"mib_s_before": "REAL", "mib_s_after": "REAL"}
# By what the guest's time, where it is counted, and its pages were moved a little.
GUEST_SEED = {"guest_seed": "INTEGER NOT NULL DEFAULT 0"}
# How long its runs were asked to last.
RUNTIME = {"runtime_s": "REAL NOT NULL DEFAULT 0"}
# How long runs are from a trial on: see bisector.search.run_length.
# How many earlier searches named a commit or found that nothing had changed, and how many the latter.
OUTCOMES = {"searches": "INTEGER NOT NULL DEFAULT 0", "without_change": "INTEGER NOT NULL DEFAULT 0"}
RUN_LENGTHS = """CREATE TABLE run_lengths (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    since INTEGER NOT NULL,
    runtime_s REAL NOT NULL,
    before_s REAL NOT NULL,
    best_s REAL NOT NULL,
    within_runs REAL NOT NULL,
    between_trials REAL NOT NULL,
    effect REAL NOT NULL,
    pairs INTEGER,
    best_pairs INTEGER,
    left_s REAL,
    best_left_s REAL
) STRICT"""
# What the guest's kernel had of each disk, as JSON.
QUEUES = {"queues": "TEXT NOT NULL DEFAULT '[]'"}
TAKEN = """CREATE TABLE taken (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    run_dir TEXT NOT NULL,
    n INTEGER NOT NULL
) STRICT"""
EARLIER = """CREATE TABLE earlier (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    better INTEGER NOT NULL,
    better_contradicted INTEGER NOT NULL,
    worse INTEGER NOT NULL,
    worse_contradicted INTEGER NOT NULL
) STRICT"""
MATTERING = """CREATE TABLE mattering (
    sha TEXT PRIMARY KEY
) STRICT"""
NOT_CHANGED = """CREATE TABLE not_changed (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    sha TEXT NOT NULL,
    end_sha TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT"""
# What a person gave up on after the start; the skips of the start are in the row of the bisection.
SKIPS = """CREATE TABLE skips (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    sha TEXT NOT NULL
) STRICT"""
CONTROLS = """CREATE TABLE controls (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    host TEXT NOT NULL,
    sha TEXT NOT NULL,
    stage TEXT NOT NULL,
    trials TEXT NOT NULL,
    failed TEXT NOT NULL
) STRICT"""
# What the layers of a storage stack counted during a run: pairs of a metric's name and a value, as JSON.
COUNTERS = {"counters": "TEXT NOT NULL DEFAULT '[]'"}
# What was given to an executor, before it was; ``n`` is the number that its trial has, if it makes one.
SUBMITTED = """CREATE TABLE submitted (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    host TEXT NOT NULL,
    work TEXT NOT NULL,
    sha TEXT NOT NULL,
    n INTEGER
) STRICT"""
ENDED = """CREATE TABLE ended (
    submission INTEGER PRIMARY KEY REFERENCES submitted (id),
    at TEXT NOT NULL,
    ending TEXT NOT NULL
) STRICT"""
# When either was recorded, by a clock that nobody sets: the boot (random(4)), and the seconds since it.
SINCE_BOOT = {"boot_id": "TEXT", "since_boot_s": "REAL"}
# By which control the fault of a trial is known to be the kernel's own.
VOUCHED = """CREATE TABLE vouched (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    control INTEGER NOT NULL REFERENCES controls (id)
) STRICT"""
# A comparison: how much is measured, what is compared (one row for each arm, and for each setup), the cells that
# nothing is measured for, and the blocks in which the arms are measured. Arms and setups are numbered from 0.
COMPARISON = """CREATE TABLE comparison (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seed INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    until REAL,
    budget_s REAL,
    delta REAL NOT NULL
) STRICT;
CREATE TABLE arms (
    n INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    commit_sha TEXT NOT NULL,
    commit_tree TEXT NOT NULL,
    commit_subject TEXT NOT NULL,
    commit_committed_at TEXT NOT NULL,
    kind TEXT NOT NULL,
    changed_by TEXT,
    parameters TEXT NOT NULL
) STRICT;
CREATE TABLE setups (
    n INTEGER PRIMARY KEY,
    settings TEXT NOT NULL
) STRICT;
CREATE TABLE absent (
    setup INTEGER NOT NULL REFERENCES setups (n),
    arm INTEGER NOT NULL REFERENCES arms (n),
    reason TEXT NOT NULL,
    PRIMARY KEY (setup, arm)
) STRICT;
CREATE TABLE blocks (
    n INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    setup INTEGER NOT NULL REFERENCES setups (n),
    round INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    arms TEXT NOT NULL
) STRICT;
CREATE TABLE placed (
    trial INTEGER PRIMARY KEY REFERENCES trials (n),
    block INTEGER NOT NULL REFERENCES blocks (n),
    arm INTEGER NOT NULL REFERENCES arms (n)
) STRICT"""
# How much time a person gave a search, or a comparison after its beginning; the budget of that is in its row.
BUDGETS = """CREATE TABLE budgets (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    budget_s REAL NOT NULL,
    spent_s REAL NOT NULL
) STRICT"""
# An arm's own configuration fragment, by its SHA-256; the run's copy of that file, or of an image; of which one a build
# was.
OWN_FILE = {"fragment": "TEXT NOT NULL DEFAULT ''", "file": "TEXT"}
BUILT_WITH = {"fragment": "TEXT NOT NULL DEFAULT ''"}
# The share of a build that make does again for a commit that can matter, where that is known.
AGAIN = {"again": "REAL"}
# Whether a state was entered because the budget allowed no more.
OUT_OF_TIME = {"out_of_time": "INTEGER NOT NULL DEFAULT 0"}
# To which block and arm a submission belongs.
PLACE = {"block": "INTEGER", "arm": "INTEGER"}
# In which state, by its number, something was submitted or ended: the last one is that of the process that says so.
PROCESS = {"process": "INTEGER NOT NULL DEFAULT 0"}
# What a trial was measured on. One of an older version has neither: its setup is that of the settings; with ``alone``,
# the name of a disk, it is that disk under the file system of the settings. Of what others measured it is not told.
SETUP = {"stack": "TEXT", "workload": "TEXT"}
CPU_COLUMNS = {
    "user_percent": "REAL",
    "system_percent": "REAL",
    "context_switches": "INTEGER",
    "major_faults": "INTEGER",
    "depths_percent": "TEXT NOT NULL DEFAULT '[]'",
}
# The steady part of a run, where it was looked for.
STEADY = {"steady_iops": "REAL", "settled_after_s": "REAL"}
# What an imported record may not know.
_MAY_BE_UNKNOWN = {
    "bisection": ("repository TEXT",),
    "runs": ("other_busy_cores REAL", "steal_share REAL", "psi_some_share REAL", "clock_drift_s REAL"),
    "jobs": ("iops_stddev REAL", "clat_mean_ns REAL", "clat_p99_ns REAL"),
}


def optional() -> str:
    """SQLite's own way to take NOT NULL from columns (sqlite.org/lang_altertable.html, section 8)."""
    updates = "; ".join(
        f"UPDATE sqlite_schema SET sql = replace(sql, '{column} NOT NULL', '{column}') "  # noqa: S608 - our names
        f"WHERE type = 'table' AND name = '{table}'"
        for table, columns in _MAY_BE_UNKNOWN.items()
        for column in columns
    )
    return f"PRAGMA writable_schema = ON; {updates}; PRAGMA writable_schema = RESET"


def added(table: str, columns: dict[str, str]) -> str:
    """Columns that a table gets."""
    return "; ".join(f"ALTER TABLE {table} ADD COLUMN {name} {kind}" for name, kind in columns.items())


# A letter is recorded before it is tried, and what became of each attempt after it.
MAILS = """CREATE TABLE mails (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    message_id TEXT NOT NULL,
    claim TEXT NOT NULL,
    subject TEXT NOT NULL,
    refs TEXT NOT NULL
) STRICT"""
MAIL_EVENTS = """CREATE TABLE mail_events (
    id INTEGER PRIMARY KEY,
    mail INTEGER NOT NULL REFERENCES mails (id),
    at TEXT NOT NULL,
    outcome TEXT NOT NULL,
    recipients TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT"""
