-- What the user's transactions want done, and what became of it. Times are seconds since the epoch.
-- A row is open while ended_at is null; identity '' means the row's own; number gives the order of puts.
CREATE TABLE IF NOT EXISTS surefoot_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    effect TEXT NOT NULL,
    arguments TEXT NOT NULL,
    identity TEXT NOT NULL,
    ordered_by TEXT,
    state TEXT NOT NULL
        CHECK (state IN ('waiting', 'parked', 'stuck', 'delivered', 'refused', 'abandoned')),
    created_at REAL NOT NULL,
    due_at REAL NOT NULL DEFAULT 0,
    claimed_by TEXT NOT NULL DEFAULT '',
    claimed_until REAL NOT NULL DEFAULT 0,
    claims INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    ended_at REAL,
    effect_key TEXT NOT NULL DEFAULT '',
    receipt TEXT,
    reason TEXT NOT NULL DEFAULT '',
    CHECK ((ended_at IS NULL) = (state IN ('waiting', 'parked', 'stuck')))
);

CREATE INDEX IF NOT EXISTS surefoot_outbox_open ON surefoot_outbox (number) WHERE ended_at IS NULL;

CREATE INDEX IF NOT EXISTS surefoot_outbox_order ON surefoot_outbox (ordered_by, number)
    WHERE ended_at IS NULL AND ordered_by IS NOT NULL;

CREATE INDEX IF NOT EXISTS surefoot_outbox_ended ON surefoot_outbox (ended_at) WHERE ended_at IS NOT NULL;

-- The database's own name: part of the identity of every row, and restored with it.
CREATE TABLE IF NOT EXISTS surefoot_outbox_database (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    id TEXT NOT NULL,
    version INTEGER NOT NULL
);

INSERT INTO surefoot_outbox_database (one, id, version)
SELECT 1, lower(hex(randomblob(16))), 1 WHERE NOT EXISTS (SELECT 1 FROM surefoot_outbox_database);
