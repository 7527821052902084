-- name: create
-- The user's database proves with one row that an effect happened.
CREATE TABLE IF NOT EXISTS surefoot_receipts (
    effect_key VARCHAR(64) PRIMARY KEY,
    request_digest VARCHAR(64) NOT NULL,
    receipt TEXT
);

-- name: begin
-- Only for sqlite3 in autocommit mode, where nobody else begins.
BEGIN IMMEDIATE;

-- name: find
-- The receipt, if the effect happened.
SELECT request_digest, receipt FROM surefoot_receipts WHERE effect_key = ?;

-- name: claim
-- Inserted before the change: a rival transaction waits here, or fails.
INSERT INTO surefoot_receipts (effect_key, request_digest) VALUES (?, ?);

-- name: fill
-- The proof, in the same transaction as the change.
UPDATE surefoot_receipts SET receipt = ? WHERE effect_key = ?;
