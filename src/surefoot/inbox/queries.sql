-- name: create
-- One row a call: who asked (scope), under which key, for what (digest), how it stands, and its stored result.
CREATE TABLE IF NOT EXISTS surefoot_inbox (
    scope VARCHAR(200) NOT NULL,
    request_key VARCHAR(255) NOT NULL,
    request_digest VARCHAR(64) NOT NULL,
    standing VARCHAR(16) NOT NULL CHECK (standing IN ('running', 'released', 'in_doubt', 'answered')),
    attempts INTEGER NOT NULL CHECK (attempts >= 1),
    transactional INTEGER NOT NULL CHECK (transactional IN (0, 1)),
    stamp BIGINT NOT NULL,
    owner BIGINT NOT NULL,
    boot VARCHAR(64) NOT NULL,
    lease_until DOUBLE PRECISION NOT NULL,
    began_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    result TEXT,
    PRIMARY KEY (scope, request_key),
    CHECK ((standing = 'answered') = (result IS NOT NULL))
);

-- name: create_index
-- Purging looks for what has expired.
CREATE INDEX IF NOT EXISTS surefoot_inbox_expiry ON surefoot_inbox (expires_at);

-- name: exists
-- 1 if the table is there, which somebody without the right to create one may use.
SELECT count(*) FROM sqlite_schema WHERE name = 'surefoot_inbox_expiry';

-- name: begin
-- SQLite takes its write lock first, so that nothing read in the transaction can be stale.
BEGIN IMMEDIATE;

-- name: begin_autocommit
-- For drivers in autocommit mode, where nobody else begins.
BEGIN;

-- name: commit
-- Only for a sqlite3 connection with autocommit=True, whose commit() does nothing.
COMMIT;

-- name: rollback
-- Likewise.
ROLLBACK;

-- name: insert
-- The claim: the primary key lets one of all that try succeed; the others wait for its transaction and insert nothing.
INSERT INTO surefoot_inbox (
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, request_key) DO NOTHING;

-- name: insert_or_fail
-- The same for databases without ON CONFLICT: the second gets the driver's IntegrityError.
INSERT INTO surefoot_inbox (
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: find
-- One call as it stands.
SELECT
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
FROM surefoot_inbox WHERE scope = ? AND request_key = ?;

-- name: find_locked
-- The same; the row cannot change until this transaction ends. SQLite holds its write lock anyway.
SELECT
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
FROM surefoot_inbox WHERE scope = ? AND request_key = ?;

-- name: save
-- A call as the rules have decided it.
UPDATE surefoot_inbox SET
    request_digest = ?, standing = ?, attempts = ?, transactional = ?,
    stamp = ?, owner = ?, boot = ?, lease_until = ?, began_at = ?, expires_at = ?, result = ?
WHERE scope = ? AND request_key = ?;

-- name: fill
-- The result of a `once` call, in the transaction of its change.
UPDATE surefoot_inbox SET standing = ?, result = ? WHERE scope = ? AND request_key = ? AND result IS NULL;

-- name: replace
-- An expired `once` call makes room; of two that try, one changes the row that both have seen.
UPDATE surefoot_inbox SET request_digest = ?, standing = ?, result = NULL, began_at = ?, expires_at = ?
WHERE scope = ? AND request_key = ? AND expires_at = ?;

-- name: renew
-- The handler still runs; a claim that somebody else took has another stamp.
UPDATE surefoot_inbox SET lease_until = ? WHERE scope = ? AND request_key = ? AND stamp = ? AND standing = 'running';

-- name: delete
-- A claim whose handler certainly did nothing.
DELETE FROM surefoot_inbox WHERE scope = ? AND request_key = ?;

-- name: with_key
-- Every call under a key, of all clients and endpoints.
SELECT
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
FROM surefoot_inbox WHERE request_key = ? ORDER BY scope;

-- name: unanswered
-- What has no answer, oldest first.
SELECT
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
FROM surefoot_inbox WHERE standing IN ('running', 'in_doubt') ORDER BY began_at, scope, request_key;

-- name: purge
-- Answers past their time, and released claims that nobody took up again; never one in doubt.
DELETE FROM surefoot_inbox WHERE expires_at <= ? AND standing IN ('answered', 'released');
