#!/bin/sh
# After the files are gone. deb: remove keeps configuration, secrets and user; purge removes them. rpm has no purge: 0 at
# the removal keeps them, too.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
  fi
  ;;
purge)
  rm -rf /etc/cdc-relay # secrets too: a password must not outlive what needed it
  if getent passwd cdc-relay >/dev/null; then userdel cdc-relay || true; fi
  if getent group cdc-relay >/dev/null; then groupdel cdc-relay || true; fi
  ;;
esac
