#!/bin/sh
# Demonstration: copies a broken project to a temporary folder, lets the loop in its .loops/ repair it
# with a real linter and a real test runner, and shows the changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/llc-demo.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
cp -R "$here/repair/." "$work"
cd "$work"

printf '\n== the loop: .loops/repair.yaml\n\n'
cat .loops/repair.yaml
printf '\n== llc run repair\n\n'
llc run repair
printf '\n== changes in basket.py\n\n'
diff -u "$here/repair/basket.py" basket.py || true
