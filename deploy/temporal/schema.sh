#!/bin/sh
# Brings Temporal's two databases to the schema of this image's version; a second run changes nothing.
set -eu
SQL_PASSWORD="$(cat /run/secrets/temporal_db_password)"
export SQL_PASSWORD

tool() {  # DATABASE ARGUMENTS...
    database=$1
    shift
    temporal-sql-tool --plugin postgres12 --endpoint postgres --port 5432 --user temporal --database "$database" "$@"
}

for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    # Without --overwrite this only makes the version tables, and does so once.
    tool "$database" setup-schema --version 0.0
    tool "$database" update-schema --schema-dir "/etc/temporal/schema/postgresql/v12/${pair##*:}/versioned"
done
