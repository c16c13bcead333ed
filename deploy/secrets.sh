#!/bin/sh
# Makes the secrets that docker-compose.yml mounts: one file each, random, only what isn't there yet.
# The folder is closed to others; the files themselves are readable, since each container's own user must read them.
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 700 "$folder"

random() { od -An -N 32 -tx1 /dev/urandom | tr -d ' \n'; }
make() {  # NAME VALUE
    [ -s "$folder/$1" ] || printf '%s' "$2" >"$folder/$1"
    chmod 444 "$folder/$1"
}

make postgres_password "$(random)"
make temporal_db_password "$(random)"
make medevac_db_password "$(random)"
make medevac_database_url "postgresql+psycopg://medevac:$(cat "$folder/medevac_db_password")@postgres:5432/medevac"
make sender_token "$(random)"
make operator_token "$(random)"
make approver_token "$(random)"
# Signs votes: the private half is mounted into the gateway alone.
command -v openssl >/dev/null || { echo "openssl, which makes the vote key, is missing: install it, run this again" >&2; exit 1; }
new=$(openssl genpkey -algorithm ed25519)
make vote_key "$new"
public=$(openssl pkey -in "$folder/vote_key" -pubout)
make vote_key_pub "$public"
echo "Secrets are in $folder. Next: cp deploy/example.env .env, then docker compose up --detach --wait"
