package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/test/suite"
)

// The two denials of plan list the owners in tables with equal headers.
func TestPlan_ListsOwnersInOneTable(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6"), pinned(ns, "pool", "shop", "10.1.0.7", "10.1.0.8"))
	for _, options := range []struct {
		flags []string
		lines int
	}{{nil, 3}, {[]string{"-o", "wide"}, 3}, {[]string{"--no-headers"}, 2}} {
		var tables []string
		for _, change := range [][]string{{"--reserve", "10.1.0.0/28"}, {"--delete"}} {
			r := run(t, cluster.Kubeconfig(), append(append([]string{"plan", ns + "/pool"}, change...), options.flags...)...)
			_, table, _ := strings.Cut(r.stdout, ":\n")
			table, _, _ = strings.Cut(table, "free: ")
			table, _, _ = strings.Cut(table, "dry run by ")
			if tables = append(tables, table); r.code != 1 || strings.Count(table, "\n") != options.lines || strings.HasPrefix(table, "RANGE ") != (options.lines == 3) || !strings.Contains(table, "IPAllocation "+ns+"/web ") {
				t.Errorf("%v %v: exit code %d: %s", change, options.flags, r.code, r.stdout)
			}
		}
		if tables[0] != tables[1] {
			t.Errorf("%v: the tables differ:\n%s\n%s", options.flags, tables[0], tables[1])
		}
	}
}

// A patch of plan, applied with kubectl, stores the planned change and keeps later
// changes of the other fields.
func TestPlan_PatchHasOnlyTheChange(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": butlerv1.GroupVersion.String(), "kind": "NetworkPool", "metadata": map[string]any{"namespace": ns, "name": "pool"},
		"spec": map[string]any{
			"cidr": "10.1.0.0/24", "routingDomain": ns, "reuseDelay": "1h", "reserved": []any{map[string]any{"cidr": "10.1.0.0/28", "description": "routers"}},
			"tenantAllocation": map[string]any{"start": "10.1.0.0", "end": "10.1.0.127", "defaults": map[string]any{"nodesPerTenant": int64(3), "lbPoolPerTenant": int64(8)}},
		},
	}}
	suite.Create(t, admin, pool)
	directory := t.TempDir()
	for n, step := range []struct {
		change, patch, free string
		delay               string // reuseDelay that another person stores before the patch is applied
		spec                string // stored with the patch
	}{
		{"--unreserve=10.1.0.0/28", "spec:\n  reserved: null\n", "free: 112 now, 128 then\n", "2h", "map[cidr:10.1.0.0/24 reuseDelay:2h routingDomain:%s tenantAllocation:map[defaults:map[lbPoolPerTenant:8 nodesPerTenant:3] end:10.1.0.127 start:10.1.0.0]]"},
		{
			"--ranges=10.1.0.0-10.1.0.63", "spec:\n  tenantAllocation:\n    end: null\n    ranges:\n    - end: 10.1.0.63\n      start: 10.1.0.0\n    start: null\n", "free: 128 now, 64 then\n", "3h",
			"map[cidr:10.1.0.0/24 reuseDelay:3h routingDomain:%s tenantAllocation:map[defaults:map[lbPoolPerTenant:8 nodesPerTenant:3] ranges:[map[end:10.1.0.63 start:10.1.0.0]]]]",
		},
		{
			"--reserve=10.1.0.32/29", "spec:\n  reserved:\n  - cidr: 10.1.0.32/29\n", "free: 64 now, 56 then\n", "4h",
			"map[cidr:10.1.0.0/24 reserved:[map[cidr:10.1.0.32/29]] reuseDelay:4h routingDomain:%s tenantAllocation:map[defaults:map[lbPoolPerTenant:8 nodesPerTenant:3] ranges:[map[end:10.1.0.63 start:10.1.0.0]]]]",
		},
	} {
		file := filepath.Join(directory, fmt.Sprint(n, ".yaml"))
		r := ipam(t, "plan", ns+"/pool", step.change, "--out", file)
		if r.code != 0 || !strings.HasPrefix(r.stdout, "would be accepted\n"+step.free) || !strings.Contains(r.stdout, "\ndry run by the API server: accepted\n") {
			t.Errorf("%s: exit code %d: %s%s", step.change, r.code, r.stdout, r.stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.SplitAfterN(string(text), "\n", 3); len(lines) != 3 || !strings.HasPrefix(lines[0], "# kubectl patch networkpools.butler.butlerlabs.dev -n "+ns+" pool ") || lines[2] != step.patch {
			t.Errorf("%s: the patch is %s, want %s", step.change, text, step.patch)
		}
		suite.Change(t, admin, pool, func(o *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(o.Object, step.delay, "spec", "reuseDelay"); err != nil {
				t.Fatal(err)
			}
		})
		suite.Kubectl(t, cluster, "", "patch", "networkpools.butler.butlerlabs.dev", "-n", ns, "pool", "--type=merge", "--patch-file="+file)
		if spec, want := fmt.Sprint(suite.Read(t, admin, pool).Object["spec"]), fmt.Sprintf(step.spec, ns); spec != want {
			t.Errorf("%s: the stored spec is %s, want %s", step.change, spec, want)
		}
	}
}

// plan writes no patch that changes nothing or would be denied, and overwrites no file.
func TestPlan_WritesNoUselessPatch(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.1.0.0/24", ns)
	pool.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.1.0.16/28"}}
	suite.Create(t, admin, pool, pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6"))
	directory := t.TempDir()
	existing := filepath.Join(directory, "existing.yaml")
	if err := os.WriteFile(existing, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(directory, "absent.yaml")
	for name, test := range map[string]struct {
		args           []string
		out            string
		code           int
		stdout, stderr string
	}{
		"reserved already":            {[]string{"--reserve=10.1.0.16/28"}, absent, 0, "no effect: the pool has these values already\n", "warning: --out=" + absent + " is not written, because the change has no effect\n"},
		"denied":                      {[]string{"--reserve=10.1.0.0/28"}, absent, 1, "would be denied: ", "warning: --out=" + absent + " is not written, because the change would be denied\n"},
		"denied by a rule of the CRD": {[]string{"--reserve=10.1.0.32/28,10.1.0.48/28", "--ranges=" + strings.Repeat("10.1.0.0-10.1.0.0,", 300) + "10.1.0.0-10.1.0.9"}, absent, 1, "would be denied", "is not written, because the change would be denied\n"},
		"deletion":                    {[]string{"--delete"}, absent, 2, "", "error: --delete and --out=" + absent + ": use one of them; a deletion has no patch\n"},
		"existing file":               {[]string{"--reserve=10.1.0.32/28"}, existing, 2, "", "error: --out=" + existing + ": the file exists: remove the file, or name a new file\n"},
		"format csv":                  {[]string{"--reserve=10.1.0.32/28", "-ocsv"}, absent, 2, "", "error: --output=csv: plan takes table, wide, json, yaml\n"},
		"format name":                 {[]string{"--reserve=10.1.0.32/28", "-oname"}, absent, 2, "", "error: --output=name: plan takes table, wide, json, yaml\n"},
		"add and remove":              {[]string{"--reserve=10.1.0.16/28", "--unreserve=10.1.0.16/28"}, absent, 2, "", "error: reserve and unreserve name 10.1.0.16/28: name the network in one of them\n"},
	} {
		r := run(t, cluster.Kubeconfig(), append([]string{"plan", ns + "/pool", "--out", test.out}, test.args...)...)
		if r.code != test.code || !strings.HasPrefix(r.stdout, test.stdout) || !strings.HasSuffix(r.stderr, test.stderr) {
			t.Errorf("%s: exit code %d: %s%s", name, r.code, r.stdout, r.stderr)
		}
		if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: the patch is written: %v", name, err)
		}
	}
	if text, err := os.ReadFile(existing); err != nil || string(text) != "mine" {
		t.Errorf("the existing file is now %s: %v", text, err)
	}
}

// A change that only the API server denies, by a rule that the tool does not know, is
// denied: exit code 1, and no patch.
func TestPlan_DeniedByTheServer(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns))
	suite.CreateDenyingPolicy(t, admin, "frozen-"+ns, admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
		ResourceRules:     suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Update, admissionregistrationv1.Delete}, "networkpools", butlerv1.GroupVersion.Group),
	})
	file := filepath.Join(t.TempDir(), "patch.yaml")
	suite.Eventually(t, suite.Soon, func(context.Context) error { // the policy takes effect within seconds
		for change, args := range map[string][]string{"patch": {"--reserve=10.1.0.0/28"}, "delete": {"--delete"}} {
			r := run(t, cluster.Kubeconfig(), append([]string{"plan", ns + "/pool"}, args...)...)
			if r.code != 1 || !strings.HasPrefix(r.stdout, "would be denied by the API server\n") || !strings.Contains(r.stdout, "dry run by the API server: denied: ") {
				return fmt.Errorf("%s: exit code %d: %s%s", change, r.code, r.stdout, r.stderr)
			}
		}
		return nil
	})
	if r := run(t, cluster.Kubeconfig(), "plan", ns+"/pool", "--reserve=10.1.0.0/28", "--out", file); r.code != 1 || !strings.Contains(r.stderr, "is not written, because the change would be denied") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the patch is written: %v", err)
	}
}

// For a spec that breaks a rule, plan prints only the rule.
func TestPlan_OfInvalidSpecPrintsOnlyTheRule(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6"))
	for change, rule := range map[string]string{"--reserve=10.0.0.0/24": "spec.reserved[0].cidr: ", "--cidr=10.1.0.0/25": "spec.cidr: Forbidden: "} {
		r := run(t, cluster.Kubeconfig(), "plan", ns+"/pool", change)
		if r.code != 1 || r.stderr != "" || !strings.HasPrefix(r.stdout, "would be denied: "+rule) || strings.Count(r.stdout, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s%s", change, r.code, r.stdout, r.stderr)
		}
	}
}

func TestPlan_OfOtherKindsNamesTheRemedy(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, suite.Kinds[1].Pool(ns, "10.1.0.0", "10.1.0.9"))
	want := "error: pool " + ns + "/pool is an IPPool, and plan serves NetworkPools only: check a change of an IPPool by kubectl apply --dry-run=server\n"
	if r := run(t, cluster.Kubeconfig(), "plan", "ippool/"+ns+"/pool", "--delete"); r.code != 2 || r.stderr != want {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// plan --delete counts the owners that the webhook counts: a claim that only names
// addresses does not count. Without the right to delete the pool, the outcome is the
// same, and the API server is not asked.
func TestPlan_DeletionEqualsTheWebhook(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	viewer := viewerKubeconfig(t, "viewer-"+ns, ns)
	suite.Create(t, admin, pinned(ns, "failed", "outside", "10.9.0.1", "10.9.0.1"), networkPool(ns, "failed", "10.1.0.0/24", ns+"-1")) // the pool does not exist when the claim is created
	suite.Create(t, admin, networkPool(ns, "owned", "10.1.0.0/24", ns+"-2"), pinned(ns, "owned", "web", "10.1.0.0", "10.1.0.6"))
	suite.Create(t, admin, networkPool(ns, "empty", "10.1.0.0/24", ns+"-3"))
	outside := pinned(ns, "failed", "outside", "", "")
	suite.AwaitObject(t, admin, outside, func(a *butlerv1.IPAllocation) string {
		if a.Status.Phase == butlerv1.PhaseFailed {
			return ""
		}
		return fmt.Sprintf("phase %q", a.Status.Phase)
	})
	for name, denied := range map[string]bool{"failed": false, "owned": true, "empty": false} {
		pool := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		if err := admin.Delete(t.Context(), pool, client.DryRunAll); (err != nil) != denied {
			t.Errorf("%s: a dry run of kubectl delete: %v", name, err)
		}
		planned := decoded[plan](t, "plan", ns+"/"+name, "--delete")
		if (len(planned.Denied) > 0) != denied || (len(planned.Owners) > 0) != denied || denied != strings.HasPrefix(planned.Server, "denied: ") || denied == (planned.Server == "accepted") {
			t.Errorf("%s: %+v", name, planned)
		}
		r := run(t, viewer, "plan", ns+"/"+name, "--delete", "-n", ns)
		verdict, code := "would be accepted\n", 0
		if denied {
			verdict, code = "would be denied: 1 IPAllocation owns addresses of the pool: delete it first\n1 range of 1 tenant owns 7 of these addresses:\n", 1
		}
		if r.code != code || !strings.HasPrefix(r.stdout, verdict) || !strings.HasSuffix(r.stdout, "dry run by the API server: skipped, because you may not delete the pool\n") {
			t.Errorf("%s: the viewer gets exit code %d: %s%s", name, r.code, r.stdout, r.stderr)
		}
		if stored := suite.Read(t, admin, pool); stored.DeletionTimestamp != nil {
			t.Errorf("%s: plan has deleted the pool", name)
		}
	}
}

// In a full pool, fit and free show the addresses in cooldown.
func TestFit_ShowsCooldown(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.1.0.0/28", ns)
	pool.Spec.ReuseDelay = &metav1.Duration{Duration: time.Hour}
	claim := pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.15")
	suite.Create(t, admin, pool, claim)
	if r := run(t, cluster.Kubeconfig(), "fit", ns+"/pool", "--count=1"); r.code != 1 || r.stdout != "none: 0 free, largest block 0\n" {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	suite.AwaitObject(t, admin, claim, func(a *butlerv1.IPAllocation) string {
		if a.Status.Phase == butlerv1.PhaseAllocated {
			return ""
		}
		return fmt.Sprintf("phase %q", a.Status.Phase)
	})
	before := time.Now().Truncate(time.Second)
	suite.Delete(t, admin, claim)
	suite.AwaitGone(t, admin, claim)
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		r := run(t, cluster.Kubeconfig(), "fit", ns+"/pool", "--count=1")
		_, until, shown := strings.Cut(strings.TrimSpace(r.stdout), "none: 0 free, largest block 0; 16 in cooldown, the first until ")
		end, err := time.Parse(time.RFC3339, until)
		if r.code != 1 || !shown || err != nil || end.Before(before.Add(time.Hour)) || end.After(time.Now().Add(time.Hour+time.Second)) {
			return fmt.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if r := run(t, cluster.Kubeconfig(), "free", ns+"/pool"); !strings.HasSuffix(r.stderr, "; 16 in cooldown, the first until "+until+"\n") {
			return errors.New(r.stderr)
		}
		return nil
	})
}

func TestFit_DeniesWhatHasNoMeaning(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/28", ns))
	for want, args := range map[string][]string{
		"--tenant=nodes=5,nodes=6: names nodes twice":      {"--tenant=nodes=5,nodes=6"},
		"--output=csv: fit takes table, wide, json, yaml":  {"--count=1", "-ocsv"},
		"--output=name: fit takes table, wide, json, yaml": {"--count=1", "-oname"},
	} {
		if r := run(t, cluster.Kubeconfig(), append([]string{"fit", ns + "/pool"}, args...)...); r.code != 2 || r.stdout != "" || !strings.HasPrefix(r.stderr, "error: "+want) {
			t.Errorf("%v: exit code %d: %s%s", args, r.code, r.stdout, r.stderr)
		}
	}
}

// plan shows the warnings of the API server, such as that about other pools with the same
// addresses.
func TestPlan_ShowsWarnings(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), networkPool(ns, "other", "10.1.1.0/24", ns))
	const warning = "offers some of the same addresses as "
	if r := ipam(t, "plan", ns+"/pool", "--cidr", "10.1.0.0/23"); r.code != 0 || !strings.Contains(r.stdout, "\nwarning: ") || !strings.Contains(r.stdout, warning) {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if p := decoded[report.Plan](t, "plan", ns+"/pool", "--cidr", "10.1.0.0/23"); !strings.Contains(strings.Join(p.Warnings, "\n"), warning) {
		t.Errorf("%+v", p)
	}
	if r := ipam(t, "plan", ns+"/pool", "--reserve", "10.1.0.0/28"); strings.Contains(r.stdout, warning) {
		t.Errorf("a change without this warning: %s", r.stdout)
	}
}
