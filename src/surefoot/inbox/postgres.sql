-- name: lock_creation
-- Two processes that create the table at the same time would both fail in the catalog.
SELECT pg_advisory_xact_lock(6013278514023917);

-- name: exists
-- 1 if the table is there, which somebody without the right to create one may use.
SELECT count(to_regclass('surefoot_inbox_expiry'));

-- name: find_locked
-- The row cannot change until this transaction ends.
SELECT
    scope, request_key, request_digest, standing, attempts, transactional,
    stamp, owner, boot, lease_until, began_at, expires_at, result
FROM surefoot_inbox WHERE scope = ? AND request_key = ? FOR UPDATE;

-- name: clock
-- One clock for all processes and machines.
SELECT extract(epoch FROM clock_timestamp())::double precision;

-- name: durability
-- Whether a commit that was acknowledged is on the server's disk.
SELECT current_setting('fsync'), current_setting('synchronous_commit');
