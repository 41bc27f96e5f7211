#!/bin/sh
# Has a built relay print the completion scripts that the packages carry, into .cache: completions.sh BINARY. zsh is not
# among them: its script is one to source, not one for $fpath.
set -eu
mkdir -p .cache/completions
for shell in bash fish; do
  "$1" completion "$shell" >".cache/completions/$shell"
done
