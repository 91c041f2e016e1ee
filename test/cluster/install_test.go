//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// firstLimit is how long it may take from the installation to the first allocation, with
// the image on the node.
const firstLimit = time.Minute

const pool = `
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: NetworkPool
metadata:
  name: first
  namespace: default
spec:
  cidr: 192.0.2.0/24
`

const allocation = `
apiVersion: butler.butlerlabs.dev/v1alpha1
kind: IPAllocation
metadata:
  name: first
  namespace: default
spec:
  poolRef:
    name: first
  tenantClusterRef:
    name: my-cluster
    namespace: default
  type: nodes
  count: 4
`

const (
	release = "butler-ipam"
	chart   = "../../charts/butler-ipam"
)

// helm runs a command of Helm's on the release and waits until its pods are as they shall
// be.
func helm(t *testing.T, command string, args ...string) {
	t.Helper()
	must(t, "", "helm", append([]string{command, release, "--namespace=" + namespace, "--wait", "--timeout=2m"}, args...)...)
}

// withValues are the arguments for a command that renders the chart, with the image under
// test and more values.
func withValues(values ...string) []string {
	args := []string{chart, "--set=image.repository=" + os.Getenv("IMAGE"), "--set-string=image.tag=" + os.Getenv("VERSION")}
	for _, value := range values {
		args = append(args, "--set="+value)
	}
	return args
}

// makeNamespace makes the manager's namespace, which takes pods of the strictest kind
// only.
func makeNamespace(t *testing.T) {
	t.Helper()
	kubectl(t, "create", "namespace", namespace)
	kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
	_, err := try(t, "", "kubectl", "run", "privileged", "--namespace="+namespace, "--image=none", "--privileged", "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Fatalf("the namespace takes a privileged pod: %v", err)
	}
}

func withoutHelm(t *testing.T) {
	overlay := t.TempDir()
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(overlay, filepath.Join(working, "../../config/default"))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\nimages: [{name: butler-ipam, newName: %q, newTag: %q}]\n", base, os.Getenv("IMAGE"), os.Getenv("VERSION"))
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--kustomize="+overlay)
	kubectl(t, "rollout", "status", "--namespace="+namespace, "deployment/butler-ipam", "--timeout=1m")
	first(t)
	kubectl(t, "delete", "ipallocation/first", "--timeout=30s")
	kubectl(t, "delete", "networkpool/first", "--timeout=30s")
	kubectl(t, "delete", "deployment/butler-ipam", "--namespace="+namespace, "--cascade=foreground") // before the roles: it keeps asking
	kubectl(t, "delete", "--kustomize="+overlay, "--ignore-not-found")
}

func accepted(t *testing.T) {
	makeNamespace(t)
	for _, values := range [][]string{nil, {"networkPolicy.enabled=true", "dashboard.enabled=true", "console.enabled=true"}} {
		objects := must(t, "", "helm", append([]string{"template", release, "--namespace=" + namespace}, withValues(values...)...)...)
		must(t, objects, "kubectl", "apply", "--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename=-")
	}
	_, err := try(t, "", "kubectl", "get", "--namespace="+namespace, "deployment/butler-ipam")
	if err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("the dry run has left a Deployment: %v", err)
	}
}

// installed is when the chart's installation began.
var installed time.Time

func installation(t *testing.T) {
	installed = time.Now()
	helm(t, "install", withValues()...)
	ready := time.Since(installed)
	answer := first(t)
	took := time.Since(installed)
	t.Logf("pods ready %.1f s after helm install, first allocation after %.1f s: %s", ready.Seconds(), took.Seconds(), answer)
	if took > firstLimit {
		t.Errorf("the first allocation took %s, longer than %s", took, firstLimit)
	}
}

// first creates a pool and an allocation, and gives the range that was in the answer.
func first(t *testing.T) (answer string) {
	t.Helper()
	until(t, "the way to the pods that are ready", func() error { // kube-proxy takes up to a second to open it
		_, err := create(t, pool)
		return err
	})
	answer, err := create(t, allocation, "--output=jsonpath={.spec.pinnedRange}")
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"endAddress":"192.0.2.3","startAddress":"192.0.2.0"}`; answer != want {
		t.Errorf("the answer is %s, want %s", answer, want)
	}
	kubectl(t, "wait", "--for=condition=Ready", "ipallocation/first", "--timeout=10s")
	return answer
}

func sameAgain(t *testing.T) {
	objects := must(t, "", "helm", "get", "manifest", release, "--namespace="+namespace)
	versions := func() string {
		settled(t)
		return must(t, objects, "kubectl", "get", "--filename=-", "--output=custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion")
	}
	before := versions()
	helm(t, "upgrade", withValues()...)
	if after := versions(); after != before {
		t.Errorf("the upgrade has changed something:\n%s\nbefore:\n%s", after, before)
	}
}
