-- `status = 'a' OR status = 'b'` and not `status IN (...)`: for a list SQLite builds a temporary tree at every write.

-- One row a run. `record` is the whole record as JSON; the other columns are what SQL selects by.
CREATE TABLE runs (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK (status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'diverged'
        OR status = 'damaged' OR status = 'quarantined' OR status = 'succeeded' OR status = 'failed'
        OR status = 'cancelled'),
    created_at REAL NOT NULL,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT;

CREATE INDEX runs_unfinished ON runs (status, created_at)
    WHERE status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'diverged'
        OR status = 'damaged' OR status = 'quarantined';

-- Append-only, in the order of commits; `digest` chains an entry to the one before it in its run.
CREATE TABLE entries (
    num INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 5),
    at_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    slot TEXT NOT NULL,
    args_digest BLOB NOT NULL,
    preview TEXT NOT NULL,
    value BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 12)
) STRICT;

CREATE UNIQUE INDEX entries_of_run ON entries (run, seq);

-- One row an identity: claimed once in the whole store.
CREATE TABLE effects (
    num INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE CHECK (length(key) = 32),
    run TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status = 'intended' OR status = 'attempted' OR status = 'in_doubt' OR status = 'parked'
        OR status = 'confirmed' OR status = 'refused' OR status = 'compensated'
        OR status = 'abandoned'),
    created_at REAL NOT NULL,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT;

CREATE INDEX effects_open ON effects (status, created_at)
    WHERE status = 'intended' OR status = 'attempted' OR status = 'in_doubt' OR status = 'parked';
CREATE INDEX effects_of_run ON effects (run) WHERE run <> '';

-- Values over 64 KiB, once each, by the hash of their content.
CREATE TABLE blobs (
    hash BLOB PRIMARY KEY CHECK (length(hash) = 32),
    content BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- One row a process that works here: its lease stands for all of its runs.
CREATE TABLE owners (
    id INTEGER PRIMARY KEY,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT;

-- One row a run that a worker could take, now or later (owner = 0), or has taken from a queue. `asleep` rows are not due.
CREATE TABLE queue (
    num INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    key TEXT NOT NULL,
    priority INTEGER NOT NULL,
    since REAL NOT NULL,
    due_at REAL NOT NULL,
    owner INTEGER NOT NULL,
    asleep INTEGER NOT NULL CHECK (asleep = 0 OR asleep = 1)
) STRICT;

CREATE INDEX queue_asleep ON queue (due_at) WHERE asleep = 1;
CREATE INDEX queue_ready ON queue (queue, priority DESC, since) WHERE asleep = 0 AND owner = 0;
CREATE INDEX queue_keys ON queue (queue, key, since) WHERE asleep = 0 AND owner = 0 AND key <> '';
CREATE INDEX queue_taken ON queue (queue) WHERE owner <> 0;

-- Queues that have limits.
CREATE TABLE queues (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT, WITHOUT ROWID;

-- Workflows that are started by the clock.
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT, WITHOUT ROWID;

-- Signals and decisions, kept until the run is gone; never changed.
CREATE TABLE mail (
    num INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    id TEXT NOT NULL,
    record BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16),
    UNIQUE (run, id)
) STRICT;
