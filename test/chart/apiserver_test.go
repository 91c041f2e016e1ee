package chart

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// One control plane without managers serves the whole package.
var cluster *sandbox.Sandbox

func TestMain(m *testing.M) {
	suite.Main(m, sandbox.Options{}, func(ctx context.Context, s *sandbox.Sandbox) error {
		cluster = s
		return s.InstallCRDs(ctx, "bin/crds") // kinds of others that the chart has objects of
	})
}

// restricted makes a namespace under the strictest pod security.
func restricted(t *testing.T, namespace string) {
	t.Helper()
	suite.Kubectl(t, cluster, "", "create", "namespace", namespace)
	suite.Kubectl(t, cluster, "", "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted")
}

func TestChart_ObjectsAreAccepted(t *testing.T) {
	restricted(t, "ipam")
	dryRun := func(file string, args ...string) (problems string) {
		t.Helper()
		text, err := template(t, "prod", "ipam", file, args...)
		if err != nil {
			t.Fatal(err)
		}
		stdout, stderr := suite.Kubectl(t, cluster, text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
		if got, want := strings.Count(stdout, "\n"), len(parse(t, text)); got != want {
			t.Errorf("%s: %d of %d objects were taken", file, got, want)
		}
		return stderr
	}
	for _, file := range valuesFiles {
		if got := dryRun(file); got != "" {
			t.Errorf("%s: %s", file, got)
		}
	}
	if got := dryRun("", "--set=podSecurityContext.runAsNonRoot=false"); !strings.Contains(got, "would violate PodSecurity") {
		t.Errorf("pods that may run as root get no warning: %q", got)
	}
}

// Helm has no pods to wait for here; that they come up is for a real node to show.
func TestHelm_InstallUpgradeUninstall(t *testing.T) {
	// Helm 4 has the API server merge, Helm 3 merges by itself.
	for name, flag := range map[string]string{"by server-side apply": "--server-side=true", "by patches": "--server-side=false"} {
		t.Run(name, func(t *testing.T) { installUpgradeRemove(t, flag) })
	}
}

func installUpgradeRemove(t *testing.T, serverSide string) {
	namespace := "platform" + strings.ReplaceAll(serverSide, "--server-side=", "-")
	restricted(t, namespace)
	run := func(args ...string) error {
		_, err := helm(t, cluster.KubectlEnv(), append(args, "--namespace="+namespace)...)
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	versions := func() string {
		t.Helper()
		var kinds []string
		for _, o := range render(t, "everything.yaml") {
			kinds = append(kinds, o.GetKind())
		}
		slices.Sort(kinds)
		stdout, _ := suite.Kubectl(t, cluster, "", "get", strings.Join(slices.Compact(kinds), ","), "--all-namespaces", "--selector=app.kubernetes.io/instance=ipam",
			`--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		return stdout
	}
	upgrade := func(args ...string) error {
		return run(append([]string{"upgrade", "ipam", chart, serverSide}, args...)...)
	}

	// Nobody serves the webhooks here: the pool and the allocation are there before them,
	// and the allocation comes with a range, as all allocations have when the chart goes.
	samples := []string{"--filename=" + filepath.Join(root, "config", "samples", "networkpool.yaml"), "--filename=" + filepath.Join(root, "config", "samples", "ipallocation-pinned.yaml")}
	suite.Kubectl(t, cluster, "", append([]string{"create"}, samples...)...)
	t.Cleanup(func() {
		if _, _, err := cluster.Kubectl(context.Background(), "", append([]string{"delete"}, samples...)...); err != nil {
			t.Error(err)
		}
	})
	untouched := func() string {
		t.Helper()
		stdout, _ := suite.Kubectl(t, cluster, "", append([]string{"get", "--output=yaml"}, samples...)...)
		return stdout
	}
	owned := untouched()

	// The sandbox has installed the CRDs already.
	must(run("install", "ipam", chart, serverSide, "--values=testdata/everything.yaml", "--take-ownership"))
	// The API server writes conditions to new objects a little later.
	suite.Kubectl(t, cluster, "", "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
	suite.Kubectl(t, cluster, "", "wait", "--for=condition=Dangling=False", "flowschema", "--selector=app.kubernetes.io/instance=ipam", "--timeout=30s")
	installed := versions()
	if got, want := strings.Count(installed, "\n"), len(render(t, "everything.yaml")); got != want {
		t.Errorf("%d of %d objects are there:\n%s", got, want, installed)
	}
	must(upgrade("--values=testdata/everything.yaml"))
	if got := versions(); got != installed {
		t.Errorf("an upgrade to the same changed something:\n%s\nbefore:\n%s", got, installed)
	}
	if err := run("install", "second", chart); err == nil || !strings.Contains(err.Error(), "cannot be imported into the current release") {
		t.Errorf("a second release in a cluster: %v", err)
	}
	if err := run("install", "second", chart, "--set=crds.install=false"); err == nil || !strings.Contains(err.Error(), "zz-butler-ipam") {
		t.Errorf("a second release without CRDs in a cluster: %v", err)
	}
	must(upgrade("--values=testdata/everything.yaml", "--set=replicas=5"))
	replicas := func() string {
		stdout, _ := suite.Kubectl(t, cluster, "", "get", "deployment", "--namespace="+namespace, "ipam-butler-ipam", "--output=jsonpath={.spec.replicas}")
		return stdout
	}
	if got := replicas(); got != "5" {
		t.Errorf("%s replicas after the upgrade to 5", got)
	}
	must(run("rollback", "ipam", "1", serverSide))
	if got := replicas(); got != "3" {
		t.Errorf("%s replicas after the rollback to 3", got)
	}
	changeMode(t, upgrade)
	must(run("uninstall", "ipam"))
	const crds = 5 // of butler.butlerlabs.dev
	if left := versions(); strings.Count(left, "\n") != crds || strings.Count(left, "CustomResourceDefinition/") != crds {
		t.Errorf("want the CRDs left, got:\n%s", left)
	}
	if diff := cmp.Diff(owned, untouched()); diff != "" {
		t.Errorf("pool and allocation, before the install and after the removal:\n%s", diff)
	}
}

// changeMode changes the mode of the certificates from secret to cert-manager, with the
// command of the README. cert-manager injects its CA only where no caBundle of the former
// mode is left.
func changeMode(t *testing.T, upgrade func(...string) error) {
	t.Helper()
	trust := func() string {
		stdout, _ := suite.Kubectl(t, cluster, "", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--selector=app.kubernetes.io/instance=ipam",
			`--output=jsonpath={range .items[*]}{.metadata.annotations.cert-manager\.io/inject-ca-from}{range .webhooks[*]} {.clientConfig.caBundle}{end}{"\n"}{end}`)
		return stdout
	}
	if err := upgrade("--reset-then-reuse-values", "--values=testdata/secret.yaml", "--set=crds.install=true,console.tlsSecret=my-console"); err != nil {
		t.Fatal(err)
	}
	if got := trust(); strings.Contains(got, "/ipam-butler-ipam-webhook") || !strings.Contains(got, " LS0t") {
		t.Errorf("in mode secret the webhooks trust\n%s", got)
	}
	if err := upgrade("--reset-then-reuse-values", "--set=certificates.mode=cert-manager"); err == nil || !strings.Contains(err.Error(), "--set certificates.existingSecret= --set certificates.caBundle=") {
		t.Errorf("a mode with the Secret of another: %v", err)
	}
	if err := upgrade("--reset-then-reuse-values", "--set=certificates.mode=cert-manager,certificates.existingSecret=,certificates.caBundle="); err != nil {
		t.Fatal(err)
	}
	if got := trust(); !strings.Contains(got, "/ipam-butler-ipam-webhook") || strings.Contains(got, " LS0t") {
		t.Errorf("in mode cert-manager the webhooks trust\n%s", got)
	}
}

func TestKustomization_ApplyTwice(t *testing.T) {
	dir := filepath.Join(root, "config", "default")
	text, _ := suite.Kubectl(t, cluster, "", "kustomize", dir)
	versions := func() string {
		stdout, _ := suite.Kubectl(t, cluster, "", "get", "--kustomize="+dir, `--output=jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		return stdout
	}
	for _, flag := range []string{"--server-side=false", "--server-side=true"} {
		suite.Kubectl(t, cluster, "", "apply", flag, "--kustomize="+dir)
		applied := versions()
		if got, want := strings.Count(applied, "\n"), len(parse(t, text)); got != want {
			t.Errorf("%s: %d of %d objects are there", flag, got, want)
		}
		suite.Kubectl(t, cluster, "", "apply", flag, "--kustomize="+dir)
		if diff := cmp.Diff(applied, versions()); diff != "" {
			t.Errorf("%s: applied again it changes something:\n%s", flag, diff)
		}
	}

	var want []string
	for _, o := range parse(t, text) {
		if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Namespace" {
			want = append(want, key(o))
		}
	}
	tree, env := checkout(t)
	shell(t, tree, env, blocksOf(t, "Without Helm", "sh", 2)[1])
	stdout, _ := suite.Kubectl(t, cluster, "", "get", "--kustomize="+dir, "--ignore-not-found", `--output=jsonpath={range .items[*]}{.kind}/{.metadata.name}{"\n"}{end}`)
	got := strings.Fields(stdout)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects that remain after the uninstall (-want +got):\n%s", diff)
	}
}
