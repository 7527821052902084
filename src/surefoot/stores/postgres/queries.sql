-- `{schema}` is the schema of this store; `{arguments}` are those of `save` that a batch needs, each by its name.

-- name: append
-- One entry of one run, or no row on another timeline than the one on which it was decided: the most frequent statement
-- by far, so it does without a function, which takes longer, and without a look at the run: an entry has one place in
-- its journal, and whoever takes a run from its owner takes that place. Only for a session of our own, whose settings it
-- looks at, since a pooler that nobody noticed may have given another.
INSERT INTO {schema}.entries (run, seq, kind, attempts, at_ms, slot, args_digest, preview, value, digest)
SELECT %b::bigint, %b::integer, %b::smallint, %b::integer, %b::bigint, %b::text, %b::bytea, %b::bytea, %b::bytea, %b::bytea
WHERE starts_with(pg_walfile_name(pg_current_wal_insert_lsn()), %b::text)
    AND current_setting('synchronous_commit') IN ('on', 'remote_apply');

-- name: save
-- A batch; the numbers of its new runs, or NULL if anything is no longer what was seen.
SELECT {schema}.save(timeline => %b::text, {arguments});

-- name: term
-- The last term that was noted (number -1: none yet), and whether this is still the server that it was noted on.
SELECT coalesce(t.number, -1), coalesce(t.noticed_at, 0), coalesce(t.lost_since, 0), here.timeline,
    coalesce(t.timeline = here.timeline AND t.cluster = here.cluster, false)
FROM (SELECT system_identifier::text AS cluster, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) AS timeline
    FROM pg_control_system()) AS here
LEFT JOIN (SELECT * FROM {schema}.terms ORDER BY number DESC LIMIT 1) AS t ON true;

-- name: begin_term
-- Note that another server goes on; of several that notice it, one does. What the owners saved last is not lost, so
-- nothing before it is.
INSERT INTO {schema}.terms (number, cluster, timeline, noticed_at, lost_since)
SELECT %b::bigint, system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), now.at,
    coalesce((SELECT extract(epoch FROM max(o.saved_at))::double precision FROM {schema}.owners o), now.at)
FROM pg_control_system(), (SELECT extract(epoch FROM clock_timestamp())::double precision AS at) AS now
ON CONFLICT (number) DO NOTHING RETURNING number;

-- name: load_runs
-- Runs by their ids, each with the last entry of its journal.
SELECT r.id, r.num, r.record, r.digest, r.status, e.seq, e.digest FROM {schema}.runs r
LEFT JOIN LATERAL (
    SELECT seq, digest FROM {schema}.entries WHERE run = r.num ORDER BY seq DESC LIMIT 1) AS e ON true
WHERE r.id = ANY (%b::text[]);

-- name: load_effects
-- Effects by their keys.
SELECT key, record, digest, status FROM {schema}.effects WHERE key = ANY (%b::text[]);

-- name: load_owners
-- Owners by their ids.
SELECT id, record, digest FROM {schema}.owners WHERE id = ANY (%b::bigint[]);

-- name: has_entry
-- True if the run holds this slot with this kind; asked only after a commit of unknown outcome.
SELECT 1 FROM {schema}.entries WHERE run = %b::bigint AND slot = %b::text AND kind = %b::smallint LIMIT 1;

-- name: settle
-- A commit that changes nothing, but waits for the disks and standbys that a commit has to wait for.
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
    THEN 'remote_apply' ELSE 'on' END, true), pg_logical_emit_message(true, 'surefoot', ''::text);

-- name: find_ready
-- Of each queue the foremost rows that nobody has, and those that slept until now, which this worker can run; each with
-- its run, the last entry of its journal, and the limits of its queue. In front of (priority, since) there was none the last
-- time at that priority: what lies there are rows that are gone, which an old snapshot keeps from being removed.
SELECT q.run, q.queue, q.workflow, q.version, q.key, q.priority, q.since, q.due_at, q.owner,
    r.num, r.record, r.digest, r.status, e.seq, e.digest, l.record, l.digest, l.changes
FROM unnest(%(queues)b::text[], %(priorities)b::bigint[], %(sinces)b::double precision[])
    AS asked (queue, priority, since) CROSS JOIN LATERAL (
    (SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue q
    WHERE q.owner = 0 AND q.due_at = 0 AND q.queue = asked.queue AND q.priority > asked.priority
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.priority DESC, q.since LIMIT %(limit)b::bigint)
    UNION ALL
    (SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue q
    WHERE q.owner = 0 AND q.due_at = 0 AND q.queue = asked.queue AND q.priority = asked.priority AND q.since >= asked.since
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.since LIMIT %(limit)b::bigint)
    UNION ALL
    (SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue q
    WHERE q.owner = 0 AND q.due_at = 0 AND q.queue = asked.queue AND q.priority < asked.priority
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.priority DESC, q.since LIMIT %(limit)b::bigint)
    UNION ALL
    (SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue q
    WHERE q.owner = 0 AND q.due_at > 0 AND q.due_at <= %(now)b::double precision AND q.queue = asked.queue
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.due_at LIMIT %(limit)b::bigint)) AS q
JOIN {schema}.runs r ON r.id = q.run
LEFT JOIN LATERAL (
    SELECT seq, digest FROM {schema}.entries WHERE run = r.num ORDER BY seq DESC LIMIT 1) AS e ON true
LEFT JOIN {schema}.queues l ON l.name = q.queue;

-- name: find_ready_of_keys
-- Of a queue the foremost rows of the next keys behind this one, so that one busy key cannot hide the others.
WITH RECURSIVE behind (key, place) AS (
    (SELECT q.key, 1 FROM {schema}.queue q WHERE q.owner = 0 AND q.due_at = 0 AND q.key <> ''
    AND q.queue = %(queue)b::text AND q.key > %(last)b::text ORDER BY q.key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.key FROM {schema}.queue q WHERE q.owner = 0 AND q.due_at = 0 AND q.key <> ''
        AND q.queue = %(queue)b::text AND q.key > behind.key ORDER BY q.key LIMIT 1), behind.place + 1
    FROM behind WHERE behind.key IS NOT NULL AND behind.place < %(keys)b::integer)
SELECT r.* FROM behind CROSS JOIN LATERAL (
    SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue q
    WHERE q.owner = 0 AND q.due_at = 0 AND q.key <> '' AND q.queue = %(queue)b::text AND q.key = behind.key
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.since LIMIT %(limit)b::bigint) AS r;

-- name: find_taken
-- Rows of these queues that somebody has.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue
WHERE owner <> 0 AND queue = ANY (%b::text[]);

-- name: next_due
-- When the earliest sleeping row is due that this worker could take.
SELECT min(r.due_at) FROM unnest(%(queues)b::text[]) AS asked (queue) CROSS JOIN LATERAL (
    SELECT q.due_at FROM {schema}.queue q WHERE q.owner = 0 AND q.due_at > 0 AND q.queue = asked.queue
    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))
    ORDER BY q.due_at LIMIT 1) AS r;

-- name: backlog
-- Queue rows, oldest first.
SELECT run, queue, workflow, version, key, priority, since, due_at, owner FROM {schema}.queue
ORDER BY since, run LIMIT %b::bigint;

-- name: load_queue
-- One queue that has limits, and how often runs were taken from it.
SELECT record, digest, changes FROM {schema}.queues WHERE name = %b::text;

-- name: find_queues
-- All queues that have limits.
SELECT record, digest FROM {schema}.queues ORDER BY name;

-- name: load_schedule
-- One schedule by its name.
SELECT record, digest FROM {schema}.schedules WHERE name = %b::text;

-- name: find_schedules
-- All schedules.
SELECT name, record, digest FROM {schema}.schedules ORDER BY name;

-- name: load_mail
-- All messages to a run, in order.
SELECT record, digest FROM {schema}.mail WHERE run = %b::text ORDER BY number;

-- name: find_owners
-- Processes that work here, or died here.
SELECT id, record, digest FROM {schema}.owners ORDER BY id;

-- name: read_run
-- A run's record (as seq -1), then its entries in order: one statement, so one snapshot.
SELECT -1 AS seq, 0::smallint, '', ''::bytea, ''::bytea, record, 0::bigint, 0, digest
FROM {schema}.runs WHERE id = %(id)b::text
UNION ALL
SELECT seq, kind, slot, args_digest, preview, value, at_ms, attempts, digest
FROM {schema}.entries WHERE run = (SELECT num FROM {schema}.runs WHERE id = %(id)b::text)
ORDER BY seq;

-- name: read_blob
-- A large value by its hash.
SELECT content FROM {schema}.blobs WHERE hash = %b::bytea;

-- name: find_runs
-- The newest runs.
SELECT id, record, digest, status FROM {schema}.runs ORDER BY created_at DESC, num LIMIT %b::bigint;

-- name: find_runs_in
-- The newest runs in these statuses.
SELECT id, record, digest, status FROM {schema}.runs WHERE status = ANY (%b::text[])
ORDER BY created_at DESC, num LIMIT %b::bigint;

-- name: find_effects
-- The newest effects.
SELECT key, record, digest, status FROM {schema}.effects ORDER BY created_at DESC, num LIMIT %b::bigint;

-- name: find_effects_in
-- The newest effects in these statuses.
SELECT key, record, digest, status FROM {schema}.effects WHERE status = ANY (%b::text[])
ORDER BY created_at DESC, num LIMIT %b::bigint;

-- name: find_effects_of_run
-- The newest effects of a run, in these statuses (none given: in any).
SELECT key, record, digest, status FROM {schema}.effects WHERE run = %(run)b::text AND run <> ''
AND (cardinality(%(statuses)b::text[]) = 0 OR status = ANY (%(statuses)b::text[]))
ORDER BY created_at DESC, num LIMIT %(limit)b::bigint;

-- name: page_of_runs
-- All runs, a page at a time.
SELECT num, id FROM {schema}.runs WHERE num > %b::bigint ORDER BY num LIMIT 1000;

-- name: page_of_effects
-- All effects, a page at a time.
SELECT num, key, record, digest, status FROM {schema}.effects WHERE num > %b::bigint ORDER BY num LIMIT 1000;

-- name: page_of_blobs
-- All large values, a few at a time.
SELECT hash, content FROM {schema}.blobs WHERE hash > %b::bytea ORDER BY hash LIMIT 10;

-- name: page_of_owners
-- All owners, a page at a time.
SELECT id, record, digest FROM {schema}.owners WHERE id > %b::bigint ORDER BY id LIMIT 1000;

-- name: strays
-- Entries of runs that are not there.
SELECT count(*) FROM {schema}.entries e WHERE NOT EXISTS (SELECT FROM {schema}.runs r WHERE r.num = e.run);

-- name: tell_time
-- The database's clock, in seconds since the epoch.
SELECT extract(epoch FROM clock_timestamp())::double precision;

-- name: appear
-- Hold this owner's mark as long as this connection lives.
SELECT pg_advisory_lock(hashtextextended('surefoot {schema} ' || %b::text, 0));

-- name: vanish
-- Drop all marks of this connection.
SELECT pg_advisory_unlock_all();

-- name: is_gone
-- True if nobody holds this owner's mark (the look itself ends with this statement). Not so if it never held one, or
-- if the server was started after it was last heard of: then every mark was dropped, and says nothing.
SELECT pg_try_advisory_xact_lock_shared(hashtextextended('surefoot {schema} ' || %(id)b::text, 0)) AND NOT EXISTS (
    SELECT FROM {schema}.owners
    WHERE id = %(number)b::bigint AND (NOT marked OR saved_at <= pg_postmaster_start_time()));

-- name: await_end
-- Wait until nobody holds this owner's mark, but no longer than a second.
SELECT {schema}.await_end(hashtextextended('surefoot {schema} ' || %(id)b::text, 0), %(number)b::bigint);

-- name: settings
-- What the server promises; the last column differs from the pid of the connection behind a pooler.
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
    current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('data_checksums') = 'on',
    (SELECT count(*) FROM pg_stat_replication), pg_backend_pid();

-- name: found_schema
-- Whether the schema is there, whether it is this store's, how many tables it has, and whether one could be made.
SELECT n.oid IS NOT NULL,
    CASE WHEN coalesce(has_schema_privilege(n.oid, 'USAGE'), true)
        THEN to_regclass('{schema}.migrations') IS NOT NULL ELSE false END,
    (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'p', 'v', 'm')),
    coalesce(has_schema_privilege(n.oid, 'USAGE'), true),
    coalesce(has_schema_privilege(n.oid, 'CREATE'), has_database_privilege(current_database(), 'CREATE'))
FROM (SELECT 1) AS one LEFT JOIN pg_namespace n ON n.nspname = %b::text;

-- name: version
-- The number of the last migration.
SELECT coalesce(max(number), 0) FROM {schema}.migrations;

-- name: lacking_rights
-- What this role lacks of all that a worker needs, as (on what, which rights); no rows if it lacks nothing. An identity
-- column needs no right on its sequence, but a statement that draws the number itself does.
SELECT place, string_agg(rights, ', ' ORDER BY number) FROM (
    SELECT name AS place, rights, number, has_table_privilege(('{schema}.' || name)::regclass, rights) AS held
    FROM (VALUES (1, 'runs', 'SELECT'), (2, 'runs', 'INSERT'), (3, 'runs', 'UPDATE'), (4, 'entries', 'SELECT'),
        (5, 'entries', 'INSERT'), (6, 'effects', 'SELECT'), (7, 'effects', 'INSERT'), (8, 'effects', 'UPDATE'),
        (9, 'blobs', 'SELECT'), (10, 'blobs', 'INSERT'), (11, 'owners', 'SELECT'), (12, 'owners', 'INSERT'),
        (13, 'owners', 'UPDATE'), (14, 'owners', 'DELETE'), (15, 'mail', 'SELECT'), (16, 'mail', 'INSERT'),
        (17, 'queue', 'SELECT'), (18, 'queue', 'INSERT'), (19, 'queue', 'UPDATE'), (20, 'queue', 'DELETE'),
        (21, 'queues', 'SELECT'), (22, 'queues', 'INSERT'), (23, 'queues', 'UPDATE'), (24, 'schedules', 'SELECT'),
        (25, 'schedules', 'INSERT'), (26, 'schedules', 'UPDATE'), (27, 'schedules', 'DELETE'),
        (28, 'terms', 'SELECT'), (29, 'terms', 'INSERT')) AS needed (number, name, rights)
    UNION ALL
    SELECT 'sequence runs_num_seq', 'USAGE', 30, has_sequence_privilege('{schema}.runs_num_seq'::regclass, 'USAGE')
    UNION ALL
    SELECT 'function ' || p.proname, 'EXECUTE', 31, has_function_privilege(p.oid, 'EXECUTE')
    FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace) AS all_rights
WHERE NOT held GROUP BY place ORDER BY min(number), place;

-- name: begin
-- For migrations only: a worker's writes are single statements.
BEGIN;

-- name: commit
-- Durable when it returns.
COMMIT;

-- name: alone
-- One process at a time makes or migrates this schema; the lock goes with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('surefoot migrates {schema}', 0)),
    set_config('synchronous_commit', 'on', true);

-- name: create_schema
-- The home of a new store.
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: record_migration
-- This one has been applied.
INSERT INTO {schema}.migrations (number) VALUES (%b::integer);

-- name: stay
-- For a session of our own: every commit waits for the disk, no lock is waited for without end, and a prepared statement
-- has one plan, by an index even where a table is small today, since it is kept while the table grows. (What has no index
-- looks dear then, and would be compiled each time.)
SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'remote_apply'
    THEN 'remote_apply' ELSE 'on' END, false), set_config('lock_timeout', '10s', false),
    set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false),
    set_config('jit', 'off', false);

-- name: patient
-- For a session of our own that waits longer than an administrator may want statements to.
SET statement_timeout = 0;

-- name: listen
-- Hear of runs that become ready; the channel bears the schema's name.
LISTEN {schema};

-- name: ring
-- Wake idle workers, with a number by which they take turns; a statement and a commit of its own, which waits for no disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%b::text, (random() * 1000000)::integer::text);
