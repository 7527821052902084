-- name: claim
-- Take so many rows that are due and nobody works on; of rows in one order only the first that is open.
UPDATE surefoot_outbox SET claimed_by = ?, claimed_until = ?, claims = claims + 1
WHERE number IN (
    SELECT number FROM surefoot_outbox AS mine
    WHERE ended_at IS NULL AND due_at <= ? AND claimed_until <= ? AND claims BETWEEN ? AND ?
      AND NOT EXISTS (
        SELECT 1 FROM surefoot_outbox AS earlier
        WHERE earlier.ended_at IS NULL AND earlier.ordered_by IS NOT NULL
          AND earlier.ordered_by = mine.ordered_by AND earlier.number < mine.number
      )
    ORDER BY number LIMIT ?
);

-- name: has_table
-- Is the outbox here at all?
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'surefoot_outbox_database';

-- name: lock
-- Writers of a SQLite file wait for each other anyway.
SELECT 1;
