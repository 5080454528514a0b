#!/usr/bin/env bash
# From a clean clone to a table: installs into .venv (first time), then runs. What the tests need besides is installed
# when they are first asked for.
#
#   ./reproduce.sh                        each paper's headline recipe at scale mini
#   ./reproduce.sh RECIPE... [options]    those recipes (all: every one); the options are those of `harness reproduce`
#   ./reproduce.sh test [pytest options]  ruff, mypy, the import contract, the tests
#   ./reproduce.sh regressions --against REV   that revision and the working tree, interleaved: what got slower or worse
set -euo pipefail
cd "$(dirname "$0")"

venv=.venv
stamp=$venv/.installed # `-EXTRA`: what that extra was installed from, word for word: no hash that a system may lack

fail() { echo "reproduce.sh: $1" >&2; exit "${2:-3}"; }

find_python() {
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

# What pip collects and loads, as it does so; its warnings about places to look in are nobody's concern.
pip_install() {
  $venv/bin/pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt "$@" \
    2> >(grep --line-buffered -v '^WARNING: Location' >&2) |
    { grep --line-buffered -E '^ *(Collecting|Downloading|Installing collected)' || true; } |
    sed -u -E 's/^ */  /; s/ \(from .*//; s/(Installing collected packages).*/\1/' >&2
}

installed() { [ "$(cat pyproject.toml constraints.txt)" = "$(cat "$stamp-$1" 2>/dev/null)" ]; }

# The extra `peers`, for runs, or `test`, which includes it.
install() {
  local extra=$1 python
  python=$(find_python) || fail "Python 3.11 or newer is needed; install it or set PYTHON=/path/to/python3"
  if [ "$extra" = test ] && installed peers; then
    echo "Installing what the tests need besides (Ray, Playwright, mypy and more): 0.5 GB." >&2
  else
    local reason="first start" size="2.4 GB"
    [ -z "$(compgen -G "$stamp-*")" ] || reason="dependencies changed"
    [ "$extra" = peers ] || size="2.9 GB, what the tests need among it,"
    echo "Installing into $venv ($reason): $size with the CPU build of torch, two to three minutes." >&2
    if [ "$(uname -s)" = Linux ] && [ -z "${PIP_EXTRA_INDEX_URL:-}${PIP_INDEX_URL:-}${PIP_FIND_LINKS:-}" ]; then
      echo "On Linux the default index carries torch's CUDA build, several GB more;" \
        "for the CPU build point PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS at it." >&2
    fi
  fi
  if [ ! -x $venv/bin/pip ]; then # absent, or left half-made by a Python without ensurepip
    rm -rf $venv
    "$python" -m venv $venv ||
      { rm -rf $venv; fail "$python cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv"; }
  fi
  installed peers || rm -f "$stamp"-*
  pip_install 'torch==2.13.0' || fail "torch could not be installed; is a package index reachable?"
  pip_install --editable ".[$extra]" || fail "the packages could not be installed; the lines above say which"
  cat pyproject.toml constraints.txt >"$stamp-$extra"
}

if [ "${1:-}" = test ]; then
  installed test || install test
else
  installed peers || installed test || install peers
fi

if [ "${1:-}" = test ]; then
  shift
  $venv/bin/ruff check .
  $venv/bin/ruff format --check --quiet .
  $venv/bin/mypy
  $venv/bin/lint-imports
  if [ $# -gt 0 ]; then
    exec $venv/bin/python -m pytest -m "not slow" "$@"
  fi
  # the tests share the cores: one thread each, and none that spins
  OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 OMP_WAIT_POLICY=passive $venv/bin/python -m pytest -m "not slow" \
    --ignore tests/benchmarks --numprocesses auto --maxprocesses 4 --dist loadfile
  exec $venv/bin/python -m pytest -m "not slow" tests/benchmarks # alone, since they take the time
fi
if [ "${1:-}" = regressions ]; then
  exec $venv/bin/harness "$@"
fi
exec $venv/bin/harness reproduce "$@"
