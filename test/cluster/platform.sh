#!/usr/bin/env bash
# platform.sh KUBECTL CERT_MANAGER: installs what a platform has before it gets a manager, cluster DNS and cert-manager, and waits
# until both are of use. CERT_MANAGER is the directory of its Go module.
set -euo pipefail
kubectl=$1 crds=$2/deploy/crds
here=$(dirname "$0")

"$kubectl" apply --server-side -f "$crds" -f "$here/manifests" >/dev/null
"$kubectl" rollout status --timeout=2m -n kube-system deployment/coredns
for part in cert-manager cert-manager-cainjector cert-manager-webhook; do
	"$kubectl" rollout status --timeout=2m -n cert-manager deployment/$part
done

# Its pods are ready before the API server trusts its webhook and knows the way to it.
issuer='{"apiVersion":"cert-manager.io/v1","kind":"Issuer","metadata":{"name":"trial"},"spec":{"selfSigned":{}}}'
for try in {1..120}; do
	refusal=$("$kubectl" create --dry-run=server -f - <<<"$issuer" 2>&1) && exit
	sleep 0.5
done
echo "cert-manager does not answer: $refusal" >&2
exit 1
