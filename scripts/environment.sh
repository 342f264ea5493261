#!/bin/sh
# Make .venv from uv.lock, with uv itself where it is missing. Idempotent; needs Python >= 3.11.
set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.9
export UV_PYTHON_DOWNLOADS=never
# The machine's own certificates: behind a proxy they are what makes the registry trusted.
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"

say() { printf 'orca: %s\n' "$*" >&2; }

python=${PYTHON:-}
for candidate in ${python:-python3.14 python3.13 python3.12 python3.11 python3}; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "no Python >= 3.11 found; install one (apt-get install python3) or set PYTHON=/path/to/python"
    exit 78
fi

if command -v uv >/dev/null 2>&1; then
    uv=uv
else
    uv=.tools/bin/uv
    if [ ! -x "$uv" ]; then
        say "fetching uv $UV_VERSION into .tools"
        if ! "$python" -m venv .tools >/dev/null 2>&1; then
            rm -rf .tools
            say "python venv is missing; install it: apt-get install python3-venv"
            exit 78
        fi
        .tools/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    fi
fi

say "making .venv from uv.lock"
"$uv" sync --locked --quiet --python "$python"
touch .venv/.ready
