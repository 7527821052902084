-- name: journal_mode
-- Write-ahead log; answers the mode that holds.
PRAGMA journal_mode = WAL;

-- name: synchronous
-- Every commit is synced.
PRAGMA synchronous = FULL;

-- name: read_synchronous
-- What holds.
PRAGMA synchronous;

-- name: checkpoint_pages
-- Copy the log back when it holds this many pages.
PRAGMA wal_autocheckpoint = 1000;

-- name: foreign_keys
-- Declared references are enforced.
PRAGMA foreign_keys = ON;

-- name: cell_check
-- A malformed page is noticed when it is read.
PRAGMA cell_size_check = ON;

-- name: trusted_schema
-- Functions in a schema that somebody else wrote are not run.
PRAGMA trusted_schema = OFF;

-- name: fullfsync
-- On macOS, ask the drive itself.
PRAGMA fullfsync = ON;

-- name: checkpoint_fullfsync
-- The same at checkpoints.
PRAGMA checkpoint_fullfsync = ON;

-- name: application_id
-- Whose file this is.
PRAGMA application_id;

-- name: set_application_id
-- "SURE".
PRAGMA application_id = 1398100549;

-- name: user_version
-- The schema's number.
PRAGMA user_version;

-- name: set_user_version
-- Equals the last migration's number.
PRAGMA user_version = 1;

-- name: tables
-- How many tables there are.
SELECT count(*) FROM sqlite_schema WHERE type = 'table';

-- name: integrity
-- Every page, and every index against its table; "ok" or what does not fit.
PRAGMA integrity_check(10);
