-- name: load_run
-- One run by its id.
SELECT num, record, digest FROM runs WHERE id = ?;

-- name: insert_run
-- A new run.
INSERT INTO runs (id, status, created_at, record, digest) VALUES (?, ?, ?, ?, ?);

-- name: update_run
-- A run that changed; the id never does.
UPDATE runs SET status = ?, record = ?, digest = ? WHERE num = ?;

-- name: find_runs
-- Runs in any of these statuses (a JSON array, given twice; empty: all), newest first.
SELECT id, record, digest, status FROM runs
WHERE json_array_length(?) = 0 OR status IN (SELECT value FROM json_each(?))
ORDER BY created_at DESC, num LIMIT ?;

-- name: find_unfinished_runs
-- The same, of statuses that are all unfinished: repeats the partial index's condition, so that the index is used.
SELECT id, record, digest, status FROM runs
WHERE (status = 'pending' OR status = 'running' OR status = 'waiting' OR status = 'diverged'
    OR status = 'damaged' OR status = 'quarantined')
AND status IN (SELECT value FROM json_each(?))
ORDER BY created_at DESC, num LIMIT ?;

-- name: load_head
-- The last entry of a run.
SELECT seq, digest FROM entries WHERE run = ? ORDER BY seq DESC LIMIT 1;

-- name: has_entry
-- True if the run holds this slot with this kind; asked only after a commit of unknown outcome.
SELECT 1 FROM entries WHERE run = ? AND slot = ? AND kind = ? LIMIT 1;

-- name: append_entry
-- One sealed entry.
INSERT INTO entries (run, seq, kind, at_ms, attempts, slot, args_digest, preview, value, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_entries
-- All entries of a run, in order.
SELECT seq, kind, slot, args_digest, preview, value, at_ms, attempts, digest FROM entries WHERE run = ? ORDER BY seq;

-- name: load_effect
-- One effect by its key.
SELECT record, digest, status FROM effects WHERE key = ?;

-- name: insert_effect
-- A new effect.
INSERT INTO effects (key, run, status, created_at, record, digest) VALUES (?, ?, ?, ?, ?, ?);

-- name: update_effect
-- An effect that changed; its key and run never do.
UPDATE effects SET status = ?, record = ?, digest = ? WHERE key = ?;

-- name: find_effects
-- Effects in any of these statuses (a JSON array, given twice; empty: all), newest first.
SELECT record, digest, status FROM effects
WHERE json_array_length(?) = 0 OR status IN (SELECT value FROM json_each(?))
ORDER BY created_at DESC, num LIMIT ?;

-- name: find_effects_of_run
-- The same, of one run.
SELECT record, digest, status FROM effects
WHERE run = ? AND run <> '' AND (json_array_length(?) = 0 OR status IN (SELECT value FROM json_each(?)))
ORDER BY created_at DESC, num LIMIT ?;

-- name: find_open_effects
-- The same, of statuses that are all open: repeats the partial index's condition, so that the index is used.
SELECT record, digest, status FROM effects
WHERE (status = 'intended' OR status = 'attempted' OR status = 'in_doubt' OR status = 'parked')
AND status IN (SELECT value FROM json_each(?))
ORDER BY created_at DESC, num LIMIT ?;

-- name: load_owner
-- One owner by its id.
SELECT record, digest FROM owners WHERE id = ?;

-- name: save_owner
-- A new owner, or one whose lease moved.
INSERT INTO owners (id, record, digest) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET record = excluded.record, digest = excluded.digest;

-- name: save_blob
-- A large value, once.
INSERT INTO blobs (hash, content) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING;

-- name: read_blob
-- A large value by its hash.
SELECT content FROM blobs WHERE hash = ?;

-- name: data_version
-- Changes when another connection has committed: what this one remembers is then stale.
PRAGMA data_version;

-- name: begin
-- The write lock is taken at once, so a transaction can never fail to upgrade.
BEGIN IMMEDIATE;

-- name: commit
-- Durable when it returns.
COMMIT;

-- name: rollback
-- Nothing of the transaction stays.
ROLLBACK;

-- name: begin_read
-- One snapshot for what follows.
BEGIN;

-- name: save_queue_row
-- A run that became ready, fell asleep, or was taken.
INSERT INTO queue (run, queue, workflow, version, key, priority, since, due_at, owner, asleep)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run) DO UPDATE SET queue = excluded.queue, workflow = excluded.workflow, version = excluded.version,
    key = excluded.key, priority = excluded.priority, since = excluded.since, due_at = excluded.due_at,
    owner = excluded.owner, asleep = excluded.asleep;

-- name: drop_queue_row
-- A run that ended, or that waits for somebody.
DELETE FROM queue WHERE run = ?;

-- name: wake_rows
-- Rows whose time has come are ready from now on.
UPDATE queue SET asleep = 0 WHERE asleep = 1 AND due_at <= ?;

-- name: find_ready
-- Rows of a queue that nobody has, of workflows (a JSON array of "name/version") that the worker holds.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM queue
WHERE asleep = 0 AND owner = 0 AND queue = ?
AND workflow || '/' || version IN (SELECT value FROM json_each(?))
ORDER BY priority DESC, since LIMIT ?;

-- name: next_key
-- The first key behind this one that has ready rows.
SELECT key FROM queue WHERE asleep = 0 AND owner = 0 AND key <> '' AND queue = ? AND key > ? ORDER BY key LIMIT 1;

-- name: find_ready_of_key
-- The same as find_ready, of one key.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM queue
WHERE asleep = 0 AND owner = 0 AND key <> '' AND queue = ? AND key = ?
AND workflow || '/' || version IN (SELECT value FROM json_each(?))
ORDER BY since LIMIT ?;

-- name: find_taken
-- Rows of a queue that somebody has.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM queue WHERE owner <> 0 AND queue = ?;

-- name: next_due
-- When the earliest sleeping row is due that this worker could take (queues and workflows as JSON arrays).
SELECT (SELECT due_at FROM queue
WHERE asleep = 1 AND queue IN (SELECT value FROM json_each(?))
AND workflow || '/' || version IN (SELECT value FROM json_each(?))
ORDER BY due_at LIMIT 1);

-- name: backlog
-- Queue rows, oldest first.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM queue ORDER BY since, run LIMIT ?;

-- name: load_queue
-- One queue that has limits.
SELECT record, digest FROM queues WHERE name = ?;

-- name: save_queue
-- A queue whose limits or allowance changed.
INSERT INTO queues (name, record, digest) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET record = excluded.record, digest = excluded.digest;

-- name: load_schedule
-- One schedule by its name.
SELECT record, digest FROM schedules WHERE name = ?;

-- name: save_schedule
-- A schedule as it stands now.
INSERT INTO schedules (name, record, digest) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET record = excluded.record, digest = excluded.digest;

-- name: drop_schedule
-- A schedule that was taken away.
DELETE FROM schedules WHERE name = ?;

-- name: find_schedules
-- All schedules.
SELECT name, record, digest FROM schedules ORDER BY name;

-- name: find_queues
-- All queues that have limits.
SELECT record, digest FROM queues ORDER BY name;

-- name: load_mail
-- All messages to a run, in order.
SELECT record, digest FROM mail WHERE run = ? ORDER BY num;

-- name: save_mail
-- One message.
INSERT INTO mail (run, id, record, digest) VALUES (?, ?, ?, ?);

-- name: find_owners
-- Processes that work here, or died here; 0 is none, but the row that keeps the clock.
SELECT id, record, digest FROM owners WHERE id <> 0 ORDER BY id;

-- name: drop_owner
-- A process that is gone and left nothing.
DELETE FROM owners WHERE id = ?;

-- name: any_ready
-- True if a run waits for a worker.
SELECT 1 FROM queue WHERE owner = 0 AND (asleep = 0 OR due_at = 1.0) LIMIT 1;
