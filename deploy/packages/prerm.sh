#!/bin/sh
# Before the files go. deb: remove, or upgrade and others; rpm: 0 at the removal, 1 at an upgrade. At an upgrade the old
# relay runs on until the new one is there.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
  systemctl --quiet --no-reload disable --now cdc-relay.service || true
fi
cat <<'TEXT'
cdc-relay goes; its replication slot in Postgres stays, and keeps WAL until the disk is full. If no other relay uses it:
  SELECT pg_drop_replication_slot('cdc_relay_app');  -- as "cdc-relay slot status" called it
TEXT
