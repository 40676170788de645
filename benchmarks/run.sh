#!/usr/bin/env bash
# Run python in .venv-bench, which holds argrad and the peers; made when missing or older than its inputs.
#   benchmarks/run.sh -m benchmarks --only gumbel
set -euo pipefail
cd "$(dirname "$0")/.."
env=.venv-bench
inputs=(pyproject.toml constraints.txt benchmarks/peers.txt)

stale=$(find "${inputs[@]}" -newer "$env/.ready" 2>/dev/null || echo "no environment yet")
if [ -n "$stale" ]; then
  test -x "$env/bin/python" || "${PYTHON:-python3}" -m venv "$env"
  echo '*' > "$env/.gitignore"
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r benchmarks/peers.txt
  touch "$env/.ready"
fi
exec "$env/bin/python" "$@"
