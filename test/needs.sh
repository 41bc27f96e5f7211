#!/usr/bin/env bash
# What the tests and checks need beside Go, one line each: why, the Debian package, and a command that succeeds if it is
# there. `test/needs.sh` lists what is missing; `test/needs.sh install` (make needs) installs it on Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=() reasons=()
need() { # reason package command…
  local reason=$1 package=$2
  shift 2
  "$@" >/dev/null 2>&1 && return
  packages+=("$package")
  reasons+=("$package: $reason")
}

# Any installed server from 14 on will do.
need 'PostgreSQL 14 or newer; without it the tests download one' postgresql compgen -G '/usr/lib/postgresql/*/bin/postgres'
need 'Kafka runs on Java 17' openjdk-17-jre-headless command -v java
need 'consumers in Java are compiled' openjdk-17-jdk-headless command -v javac
need "Maven fetches Kafka's jars" maven command -v mvn
need 'consumers in Java use its driver' libpostgresql-jdbc-java test -e /usr/share/java/postgresql.jar
need 'programs in Python use psycopg' python3-psycopg /usr/bin/python3 -c 'import psycopg'
need 'moto, which speaks SNS and EventBridge, is fetched' python3-pip python3 -m pip --version
need 'programs in JavaScript are run' nodejs command -v node
need "BullMQ's own workers are fetched" npm command -v npm
need 'the command that registers a schema is run' jq command -v jq
need 'commands of the docs are run' curl command -v curl
need 'downloads verify certificates' ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
need "the simulator's mutants are patches" patch command -v patch
need 'alert rules fire in a real Prometheus' prometheus command -v promtool
need 'the relay runs through a pooler' pgbouncer command -v pgbouncer
need 'Redis Streams and BullMQ' redis-server command -v redis-server
need 'RabbitMQ' rabbitmq-server test -x /usr/lib/rabbitmq/bin/rabbitmq-server
need 'the console is opened in a browser' chromium command -v chromium
need 'the browser needs a font' fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
need 'the unit file is verified' systemd command -v systemd-analyze
need 'the rpm is inspected' rpm command -v rpm
need 'the race detector needs cgo' gcc command -v gcc
need 'cgo needs the headers of libc' libc6-dev test -e /usr/include/stdio.h
need 'scripts are checked' shellcheck command -v shellcheck
need 'the targets are in the Makefile' make command -v make

case ${1:-list} in
list)
  [ "${#packages[@]}" -gt 0 ] || exit 0
  echo 'Missing on this machine; tests that need one of these are skipped:'
  printf '  %s\n' "${reasons[@]}"
  echo "To get all of them on Debian: make needs"
  ;;
install)
  if [ "${#packages[@]}" -gt 0 ]; then
    as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }
    # The tests start servers of their own; the cluster of the package would only take memory.
    as_root mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
      echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    # Nothing that is installed here starts by itself.
    [ -e /usr/sbin/policy-rc.d ] || {
      printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
      as_root chmod +x /usr/sbin/policy-rc.d
    }
    as_root apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
  fi
  mvn -q -B -f test/kafka/pom.xml dependency:resolve
  mvn -q -B -f test/registry/pom.xml dependency:resolve
  mvn -q -B -f test/elasticmq/pom.xml dependency:resolve
  mvn -q -B -f packages/java/peers.xml dependency:resolve
  ;;
*)
  echo "usage: test/needs.sh [list|install]" >&2
  exit 2
  ;;
esac
