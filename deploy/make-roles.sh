#!/bin/sh
# Two roles and a database, once, by a superuser: the owner runs `surefoot migrate`, workers may only work.
set -eu
psql -v ON_ERROR_STOP=1 -v owner="$OWNER_PASSWORD" -v worker="$WORKER_PASSWORD" --username "${POSTGRES_USER:-postgres}" <<'SQL'
CREATE ROLE surefoot_owner LOGIN PASSWORD :'owner';
CREATE ROLE surefoot_worker LOGIN PASSWORD :'worker';
CREATE DATABASE agents OWNER surefoot_owner ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE agents FROM PUBLIC;
GRANT CONNECT ON DATABASE agents TO surefoot_worker;
SQL
