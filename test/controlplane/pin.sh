#!/usr/bin/env bash
# pin.sh VERSION..., as in pin.sh v1.31.14: writes v1.31.mod and v1.31.sum, from which make builds that version's kube-apiserver.
# The staging modules that Kubernetes requires as v0.0.0 are published under the same minor and patch version as v0.31.14.
set -euo pipefail
cd "$(dirname "$0")"
for version in "$@"; do
  file=${version%.*}.mod
  upstream=$(go mod download -json "k8s.io/kubernetes@$version" | awk -F'"' '$2 == "GoMod" {print $4}')
  {
    echo "module butlerlabs.dev/ipam/test/controlplane"
    echo
    awk '$1 == "go" && $2 ~ /^[0-9]/ {split($2, v, "."); printf "go 1.26.0\n\n// As the released binaries have it.\ngodebug default=go%s.%s\n\n", v[1], v[2]; exit}' "$upstream"
    echo "tool k8s.io/kubernetes/cmd/kube-apiserver"
    echo
    echo "require k8s.io/kubernetes $version"
    echo
    echo "replace ("
    awk -v version="v0${version#v1}" '$2 == "=>" && $3 ~ /^\.\/staging\// {print "\t" $1 " => " $1 " " version}' "$upstream"
    echo ")"
  } >"$file"
  go mod tidy -modfile="$file"
done
