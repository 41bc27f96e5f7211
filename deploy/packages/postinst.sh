#!/bin/sh
# After the files are there. deb: configure, with the version before if there was one; rpm: 1 at the first installation,
# 2 at an upgrade.
set -e
upgrade=
case "$1" in
configure) upgrade=${2:-} ;;
1) ;;
2) upgrade=yes ;;
*) exit 0 ;; # something else failed, and what was there is there again
esac

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  # Only a relay that runs is restarted: one that nobody configured, or that was stopped, stays as it is.
  if [ -n "$upgrade" ]; then
    systemctl try-restart cdc-relay.service || echo 'cdc-relay was not restarted; see: journalctl -u cdc-relay' >&2
  fi
fi

if [ -z "$upgrade" ]; then
  cat <<'TEXT'
cdc-relay is installed, and not started. Prepare Postgres, tables and topics (/usr/share/doc/cdc-relay/docs/production.md,
steps 1 to 4), fill in /etc/cdc-relay/cdc-relay.yaml, then:
  sudo -u cdc-relay cdc-relay check --config /etc/cdc-relay/cdc-relay.yaml
  sudo systemctl enable --now cdc-relay
TEXT
fi
