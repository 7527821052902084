-- `{schema}` is the schema of this store, `{role}` the quoted name of a role.

-- name: grant_worker
-- What a worker needs and nothing more: journals, large values and messages are added to and never changed.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};
GRANT INSERT ON {schema}.runs, {schema}.entries, {schema}.effects, {schema}.blobs, {schema}.owners, {schema}.queue,
    {schema}.queues, {schema}.schedules, {schema}.mail, {schema}.terms TO {role};
GRANT UPDATE ON {schema}.runs, {schema}.effects, {schema}.owners, {schema}.queue, {schema}.queues, {schema}.schedules
    TO {role};
GRANT DELETE ON {schema}.owners, {schema}.queue, {schema}.schedules TO {role};
GRANT USAGE ON SEQUENCE {schema}.runs_num_seq TO {role};
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};
