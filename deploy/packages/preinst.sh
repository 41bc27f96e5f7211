#!/bin/sh
# Before the files come, so that the configuration can belong to its group: the user that the relay runs as. It owns no
# file and has no login. The same for deb and rpm, and at an upgrade nothing is left to do.
set -e
getent group cdc-relay >/dev/null || groupadd --system cdc-relay
getent passwd cdc-relay >/dev/null || useradd --system --gid cdc-relay --no-create-home --home-dir /nonexistent \
  --shell /usr/sbin/nologin --comment 'cdc-relay' cdc-relay
