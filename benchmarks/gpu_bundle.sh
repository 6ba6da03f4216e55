#!/usr/bin/env bash
# Runs the GPU tests and benchmarks/gpu.py from the archives beside it. It needs a Python that has torch and NumPy, and no network.
#
#   OUT=results bash run.sh [arguments of gpu.py, as --only td3+bc]
#
# OUT      folder of the results (out)
# PLACE    folder to unpack into; where it is unpacked already it stays as it is (a temporary one)
# PYTHON   the interpreter (python3)
# TESTS    "no" leaves the tests out; TESTS_WITHIN are their seconds (150)
set -uo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-python3}"
mkdir -p "${OUT:-out}" && out="$(cd "${OUT:-out}" && pwd)" || exit
place="${PLACE:-$(mktemp -d)}"
mkdir -p "$place" && place="$(cd "$place" && pwd)" || exit
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export MLFLOW_DISABLE_TELEMETRY=true RAY_USAGE_STATS_ENABLED=0

if [[ ! -e "$place/.unpacked" ]]; then
    begin=$SECONDS
    waited=()
    for archive in "$here"/*.tar.xz; do
        if command -v xz >/dev/null; then tar -xJf "$archive" -C "$place" & else "$python" -m tarfile -e "$archive" "$place" & fi
        waited+=($!)
    done
    for one in "${waited[@]}"; do wait "$one" || { echo "an archive could not be unpacked" >&2; exit 1; }; done
    touch "$place/.unpacked"
    echo "unpacked in $((SECONDS - begin)) s"
fi
export PYTHONPATH="$place:$place/packages${PYTHONPATH:+:$PYTHONPATH}"
cd "$place/d3ray" || exit

failed=0
if [[ "${TESTS:-yes}" == no ]]; then
    echo "the GPU tests were left out"
elif "$python" -c 'import hypothesis, pytest, xdist' 2>"$out/tests.txt"; then
    mapfile -t files < <(grep -rl 'mark\.gpu' tests --include='test_*.py' | sort)
    timeout "${TESTS_WITHIN:-150}" "$python" -m pytest -m gpu -p no:cacheprovider --continue-on-collection-errors "${files[@]}" 2>&1 | tee "$out/tests.txt" || failed=$?
else
    echo "pytest cannot be imported: no tests"
fi
"$python" benchmarks/gpu.py --out "$out" "$@" 2>&1 | tee "$out/gpu.txt" || failed=$?
exit "$failed"
