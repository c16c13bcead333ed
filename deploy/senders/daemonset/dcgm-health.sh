#!/bin/sh
# Writes what `dcgmi health` says into a file that agent.py reads: its exit code in the first line, its JSON after it.
# Has no token and posts nothing. DCGM_HOST: a host engine, host[:port]; empty = the one of this machine.
set -u
out=${DCGM_FILE:?name the file that agent.py reads}
every=${EVERY_S:-30}
watching=no

dcgm() { timeout 25 dcgmi health ${DCGM_HOST:+--host "$DCGM_HOST"} "$@"; }

while :; do
    # Health is only known for what is watched: all of it, set once and again after the host engine was away.
    [ "$watching" = yes ] || { dcgm -s a >/dev/null 2>&1 && watching=yes; }
    body=$(dcgm -c -j 2>&1)
    code=$?
    [ "$code" = 0 ] || watching=no
    printf '%s\n%s\n' "$code" "$body" >"$out.new" && mv "$out.new" "$out"
    [ "$every" != 0 ] || exit 0
    sleep "$every"
done
