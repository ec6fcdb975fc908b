"""The tables of the history of nights: events in their order, each with its facts; classes are derived from them.

Column names are the fields of the records in :mod:`bisector.store.nights`, but for the four that are called after IOPS.
They hold values of the metric that decided, which in version 1 was no other, and have their names from there: a file of
that version is read as it is while nobody writes to it.

Figures are here of measurements up to version 3 alone. Later ones have the number ``n`` of a trial in a store of the
job, whose files are in ``directory``, and figures are that trial's.
"""

from bisector.store.schema import Schema

_TABLES = """
CREATE TABLE nights (
    n INTEGER PRIMARY KEY,
    started_at TEXT NOT NULL,
    config TEXT NOT NULL,
    budget_s REAL NOT NULL,
    tool_version TEXT NOT NULL,
    pid INTEGER NOT NULL
) STRICT;

CREATE TABLE night_ends (
    night INTEGER PRIMARY KEY REFERENCES nights (n),
    at TEXT NOT NULL,
    ending TEXT NOT NULL
) STRICT;

CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    night INTEGER NOT NULL REFERENCES nights (n),
    job TEXT NOT NULL,
    at TEXT NOT NULL,
    kind TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_job ON events (job);

CREATE TABLE tips (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    repository TEXT NOT NULL,
    rev TEXT NOT NULL,
    sha TEXT NOT NULL,
    subject TEXT NOT NULL,
    committed_at TEXT NOT NULL,
    rule TEXT NOT NULL,
    wanted TEXT NOT NULL
) STRICT;

CREATE TABLE measurements (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    role TEXT NOT NULL,
    rev TEXT NOT NULL,
    sha TEXT NOT NULL,
    conditions TEXT NOT NULL,
    threshold_iops REAL,
    min_ratio REAL NOT NULL,
    host TEXT NOT NULL,
    toolchain TEXT NOT NULL,
    least_iops REAL,
    why TEXT NOT NULL,
    fault TEXT NOT NULL,
    trials INTEGER NOT NULL,
    total_s REAL NOT NULL,
    directory TEXT NOT NULL,
    metric TEXT NOT NULL DEFAULT 'read.iops',
    over TEXT NOT NULL DEFAULT 'worst',
    n INTEGER,
    era TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE figures (
    id INTEGER PRIMARY KEY,
    event INTEGER NOT NULL REFERENCES measurements (event),
    run TEXT NOT NULL,
    name TEXT NOT NULL,
    direction TEXT NOT NULL,
    iops_mean REAL NOT NULL,
    metric TEXT
) STRICT;
CREATE INDEX figures_of_event ON figures (event);

CREATE TABLE bisections (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    run_dir TEXT NOT NULL,
    direction TEXT NOT NULL,
    old_sha TEXT NOT NULL,
    new_sha TEXT NOT NULL
) STRICT;

CREATE TABLE conclusions (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    run_dir TEXT NOT NULL,
    state TEXT NOT NULL,
    message TEXT NOT NULL,
    first_sha TEXT NOT NULL,
    new_sha TEXT NOT NULL,
    new_iops REAL
) STRICT;

CREATE TABLE troubles (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    step TEXT NOT NULL,
    message TEXT NOT NULL,
    hint TEXT NOT NULL
) STRICT;

CREATE TABLE infra_faults (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    at TEXT NOT NULL,
    sha TEXT NOT NULL,
    stage TEXT NOT NULL,
    host TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;

CREATE TABLE letters (
    event INTEGER PRIMARY KEY REFERENCES events (id),
    about TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
"""

_UPGRADES = {
    1: "ALTER TABLE measurements ADD COLUMN metric TEXT NOT NULL DEFAULT 'read.iops'; "
    "ALTER TABLE measurements ADD COLUMN over TEXT NOT NULL DEFAULT 'worst'",
    2: "ALTER TABLE figures ADD COLUMN metric TEXT",
    3: "ALTER TABLE measurements ADD COLUMN n INTEGER",
    4: "ALTER TABLE measurements ADD COLUMN era TEXT NOT NULL DEFAULT ''",
}

NIGHTS = Schema(
    application_id=0x6273636E,  # "bscn"
    version=5,
    tables=_TABLES,
    upgrades=_UPGRADES,
    named_by="it is made by the first night: bisector nightly --config FILE",
)
