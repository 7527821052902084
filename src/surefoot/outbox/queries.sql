-- name: database
-- The database's own name, and the version of its tables.
SELECT id, version FROM surefoot_outbox_database;

-- name: put
-- One effect that is wanted, if the transaction commits.
INSERT INTO surefoot_outbox (id, effect, arguments, identity, ordered_by, state, created_at) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: find
-- One row.
SELECT number, id, effect, arguments, identity, ordered_by, state, created_at, due_at, claims, tries, ended_at, effect_key,
    receipt, reason
FROM surefoot_outbox WHERE id = ?;

-- name: pending
-- What is still to be delivered, or waits for a person, in order.
SELECT number, id, effect, arguments, identity, ordered_by, state, created_at, due_at, claims, tries, ended_at, effect_key,
    receipt, reason
FROM surefoot_outbox WHERE ended_at IS NULL AND state <> 'stuck' ORDER BY number LIMIT ?;

-- name: failed
-- What did not happen, or cannot, in order.
SELECT number, id, effect, arguments, identity, ordered_by, state, created_at, due_at, claims, tries, ended_at, effect_key,
    receipt, reason
FROM surefoot_outbox WHERE state IN ('stuck', 'refused', 'abandoned') ORDER BY number LIMIT ?;

-- name: claimed
-- The rows that this claim took, in order.
SELECT number, id, effect, arguments, identity, ordered_by, state, created_at, due_at, claims, tries, ended_at, effect_key,
    receipt, reason
FROM surefoot_outbox WHERE ended_at IS NULL AND claimed_by = ? ORDER BY number;

-- name: claimants
-- Who holds claims now.
SELECT DISTINCT claimed_by FROM surefoot_outbox WHERE ended_at IS NULL AND claimed_until > ?;

-- name: release
-- The claims of one that is gone; how often its rows were claimed stays.
UPDATE surefoot_outbox SET claimed_until = 0 WHERE ended_at IS NULL AND claimed_by = ?;

-- name: end
-- What became of it. Whoever learns it first writes it; it is the same for all.
UPDATE surefoot_outbox
SET state = ?, ended_at = ?, effect_key = ?, receipt = ?, reason = ?, tries = tries + 1, claims = 0, claimed_until = 0
WHERE id = ? AND ended_at IS NULL;

-- name: put_off
-- Not now: look at it again when it is due. Only by the one whose claim it is.
UPDATE surefoot_outbox
SET state = ?, due_at = ?, effect_key = ?, reason = ?, tries = tries + 1, claims = 0, claimed_until = 0
WHERE id = ? AND claimed_by = ? AND ended_at IS NULL;

-- name: next_due
-- When the next row that was put off is due.
SELECT MIN(due_at) FROM surefoot_outbox WHERE ended_at IS NULL AND due_at > ?;

-- name: suspects
-- Is a row due whose deliverer died?
SELECT 1 FROM surefoot_outbox WHERE ended_at IS NULL AND claims > 0 AND due_at <= ? AND claimed_until <= ? LIMIT 1;

-- name: wake
-- Look again now at what waits for a person or for other code.
UPDATE surefoot_outbox SET due_at = 0
WHERE ended_at IS NULL AND state <> 'waiting' AND due_at < ?;

-- name: forget
-- What was delivered long enough ago.
DELETE FROM surefoot_outbox WHERE state = 'delivered' AND ended_at IS NOT NULL AND ended_at <= ?;

-- name: retry
-- A stuck row is to be tried again at once.
UPDATE surefoot_outbox SET state = ?, due_at = 0, claims = 0, effect_key = '', reason = ? WHERE id = ? AND state = 'stuck';

-- name: drop
-- A person gives a stuck row up.
UPDATE surefoot_outbox SET state = ?, ended_at = ?, reason = ? WHERE id = ? AND state = 'stuck';
