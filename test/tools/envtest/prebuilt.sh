#!/usr/bin/env bash
# prebuilt.sh VERSION DIR: fills DIR with etcd, kube-apiserver and kubectl from the newest envtest release of VERSION's minor. DIR is
# left empty, and the exit code is 0, where there is no such release or it cannot be downloaded, verified and run: the caller builds them then.
#
# ENVTEST_INDEX    address of another index than that of sigs.k8s.io/controller-tools; "none" downloads nothing
set -euo pipefail

version=${1#v} dir=$2
minor=${version%.*}
index_seconds=${ENVTEST_INDEX_SECONDS:-10} # for the index: closed networks often drop packets without an answer
download_seconds=${ENVTEST_DOWNLOAD_SECONDS:-300} # for about 100 MB: building takes longer than that

rm -rf "$dir" && mkdir -p "$dir"
[ "${ENVTEST_INDEX:-}" != none ] || exit 0

dir=$(cd "$dir" && pwd)
work=$(mktemp -d "$dir.XXXXXX")
# shellcheck disable=SC2046 # one word per process
clean() {
  kill $(jobs -p) 2>/dev/null || true
  chmod -R u+w "$work" && rm -rf "$work" # setup-envtest makes its directories read-only
}
trap clean EXIT
export TMPDIR=$work

give_up() {
  echo "no prebuilt control plane of Kubernetes $minor: $1" >&2
  exit 0
}

# bounded SECONDS COMMAND...: runs COMMAND, and gives up where it fails or takes longer. macOS has no timeout(1).
bounded() {
  local seconds=$1
  shift
  "$@" 2>"$work/errors" &
  for ((i = 0; i < seconds * 10; i++)); do
    if ! kill -0 $! 2>/dev/null; then
      wait $! || give_up "$(tail -n 1 "$work/errors")"
      return
    fi
    sleep 0.1
  done
  give_up "$(basename "$1") $2 took longer than $seconds s"
}

tool=$work/setup-envtest
bounded 120 "${GO:-go}" build -C "$(dirname "$0")" -o "$tool" sigs.k8s.io/controller-runtime/tools/setup-envtest

flags=(--bin-dir "$work/store" ${ENVTEST_INDEX:+--index "$ENVTEST_INDEX"})
bounded "$index_seconds" "$tool" list "${flags[@]}" "$minor.x" >"$work/list"
grep -q . "$work/list" || give_up "the index has none"

echo "downloading a prebuilt control plane of Kubernetes $minor" >&2
bounded "$download_seconds" "$tool" use "${flags[@]}" --print path "$minor.x" >"$work/path"

store=$(cat "$work/path")
for name in etcd kube-apiserver kubectl; do
  [ -x "$store/$name" ] || give_up "the release has no $name"
  arguments=(--version)
  [ "$name" != kubectl ] || arguments=(version --client)
  "$store/$name" "${arguments[@]}" >/dev/null 2>"$work/errors" || give_up "its $name does not run: $(head -n 1 "$work/errors")"
done
chmod -R u+w "$work/store"
mv "$store"/{etcd,kube-apiserver,kubectl} "$dir"
