# shellcheck shell=bash
# shellcheck disable=SC2034 # the names are for those who source this
# What the scripts share: source it, it only defines names.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
RUNTIME=$ROOT/.runtime
JAVA=$RUNTIME/java/bin/java
KAFKA_VERSION=${KAFKA_VERSION:-4.3.0}
KAFKA_JARS=$RUNTIME/kafka-$KAFKA_VERSION
SPARK_VERSION=$(sed -n 's/^pyspark==//p' "$ROOT/requirements.lock")
SPARK_JARS=$RUNTIME/spark-jars-$SPARK_VERSION

say() { printf '%s\n' "$*"; }

warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die MESSAGE [EXIT-CODE]: one line that says what to do, no trace.
die() {
    warn "$1"
    exit "${2:-1}"
}

# Makes the programs of .venv and its Java the ones that are found, here and in all children: Spark, too, looks
# for a `python3` and a Java of its own.
use_runtime() { export PATH=$VENV/bin:$PATH JAVA_HOME=$RUNTIME/java PYSPARK_PYTHON=$VENV/bin/python; }

# find_python [NAME…]: prints the path of the first Python >= 3.11 that can make virtual environments.
# Returns 1 if there is no Python >= 3.11, and 2 if the one printed lacks the parts for that.
# -I here and elsewhere: neither the caller's directory nor PYTHONPATH must change what runs.
find_python() {
    local name path without=
    (($#)) || set -- python3.13 python3.12 python3.11 python3
    for name in "$@"; do
        path=$(command -v "$name") || continue
        # Some names on PATH are stand-ins that run nothing, so ask each what it is.
        "$path" -I -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null || continue
        if "$path" -I -c 'import venv; from ensurepip import bootstrap' 2>/dev/null; then
            printf '%s\n' "$path"
            return
        fi
        without=${without:-$path}
    done
    [[ $without ]] || return 1
    printf '%s\n' "$without"
    return 2
}
