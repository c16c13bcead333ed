#!/bin/sh
# Runs once, when PostgreSQL makes its data folder: a role and databases each for Temporal and the ledger.
# Neither can open the other's.
set -eu

read_secret() { cat "${SECRETS:-/run/secrets}/$1"; }

psql --set ON_ERROR_STOP=1 --no-psqlrc --quiet --username "$POSTGRES_USER" --dbname postgres \
    --set temporal_password="$(read_secret temporal_db_password)" \
    --set medevac_password="$(read_secret medevac_db_password)" <<'SQL'
CREATE ROLE temporal LOGIN PASSWORD :'temporal_password';
CREATE ROLE medevac LOGIN PASSWORD :'medevac_password';
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
CREATE DATABASE medevac OWNER medevac;
REVOKE CONNECT ON DATABASE temporal, temporal_visibility, medevac FROM PUBLIC;
SQL
