package plugin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

type imported struct {
	Claims       []struct{ Kind, Name, Tenant string }
	Reservations []struct{ Range string }
	Present      int
	Conflicts    []struct {
		Kind    string
		Rows    []int
		Message string
	}
	Written bool
}

// writeFile writes a file for import.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "addresses")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newClaim returns an IPAllocation of a tenant with a range.
func newClaim(ns, name, first, last, tenant string) *butlerv1.IPAllocation {
	a := suite.Kinds[0].Claim(ns, name, "").(*butlerv1.IPAllocation)
	a.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: "team", Name: tenant}
	a.Spec.PinnedRange = &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

// stored returns the number of IPAllocations of a namespace, and the generation of its
// pool.
func stored(t *testing.T, ns string) (allocations int, generation int64) {
	t.Helper()
	var list butlerv1.IPAllocationList
	if err := admin.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	return len(list.Items), suite.Read(t, admin, networkPool(ns, "pool", "", "")).Generation
}

// A NetBox export has 5,000 rows. 40 rows are in conflict with earlier rows or with the
// cluster: import reports the 40 conflicts and writes nothing. Without the 40 rows import
// writes the plan, a second import changes nothing, and the status of the pool counts the
// imported addresses.
func TestImport_NetBox(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := networkPool(ns, "pool", "10.80.0.0/18", ns)
	pool.Spec.Gateway, pool.Spec.ReuseDelay = "10.80.0.1", &metav1.Duration{Duration: time.Hour}
	pool.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.80.60.0/24", Description: "storage"}}
	kept := suite.Kinds[1].Pool(ns, "10.80.50.0", "10.80.50.255").(*metal3v1.IPPool)
	kept.Name, kept.Spec.PreAllocations = "machines", map[string]metal3v1.IP{"node-1": "10.80.50.1", "node-2": "10.80.50.3"}
	edge := suite.Kinds[4].Pool(ns, "10.80.51.0", "10.80.51.255")
	suite.Create(t, admin, pool, kept, edge)
	var released []client.Object
	for n := range 8 {
		suite.Create(t, admin, newClaim(ns, fmt.Sprint("stored-", n), fmt.Sprintf("10.80.52.%d", 10*n), fmt.Sprintf("10.80.52.%d", 10*n+4), "other"))
	}
	for n := range 5 {
		a := newClaim(ns, fmt.Sprint("gone-", n), fmt.Sprintf("10.80.53.%d", 2*n), fmt.Sprintf("10.80.53.%d", 2*n), "other")
		suite.Create(t, admin, a)
		released = append(released, a)
	}
	for n := range 3 {
		suite.Create(t, admin, suite.Kinds[4].Claim(ns, fmt.Sprint("vip-", n), fmt.Sprintf("10.80.51.%d/32", 1+2*n)))
	}
	for _, o := range released {
		suite.Delete(t, admin, o)
	}

	const header = "address,vrf,tenant,status,role,device,virtual_machine,interface,dns_name,description,tags"
	rows := []string{header}
	add := func(address, tenant string) {
		rows = append(rows, fmt.Sprintf("%s/18,prod,%s,active,,,,,,,", address, tenant))
	}
	for tenant := range 300 { // 10 consecutive addresses per tenant, then a gap of one address
		for n := range 10 {
			a := 256 + 11*tenant + n
			add(fmt.Sprintf("10.80.%d.%d", a/256, a%256), fmt.Sprintf("team/tenant-%d", tenant))
		}
	}
	for n := range 1960 { // rows without a tenant
		add(fmt.Sprintf("10.80.%d.%d", 32+n/256, n%256), "")
	}
	good := slices.Clone(rows)
	planted := map[int]string{} // row -> kind of the conflict
	plant := func(kind, address, tenant string) {
		add(address, tenant)
		planted[len(rows)] = kind
	}
	for n := range 8 {
		plant("rows", fmt.Sprintf("10.80.1.%d", 11*n), "team/second")
		plant("owned", fmt.Sprintf("10.80.52.%d", 10*n+n%5), "team/second")
	}
	for n := range 4 {
		plant("rows", fmt.Sprintf("10.80.2.%d", 74+11*n), "")
		plant("outside", fmt.Sprintf("10.81.0.%d", 2*n+1), "team/second")
	}
	for n := range 5 {
		plant("reserved", fmt.Sprintf("10.80.60.%d", 2*n), "team/second")
		plant("cooldown", fmt.Sprintf("10.80.53.%d", 2*n), "team/second")
	}
	for n := range 3 {
		plant("owned", fmt.Sprintf("10.80.51.%d", 1+2*n), "team/second")
	}
	plant("reserved", "10.80.0.1", "team/second")
	plant("preAllocated", "10.80.50.1", "team/second")
	plant("preAllocated", "10.80.50.3", "team/second")
	if len(rows) != 5001 || len(planted) != 40 {
		t.Fatalf("%d rows, %d planted", len(rows)-1, len(planted))
	}
	file := writeFile(t, "\ufeff"+strings.Join(rows, "\r\n")+"\r\n")
	before, generation := stored(t, ns)
	args := []string{"import", file, "--to", ns + "/pool", "--vrf-map", "prod=" + ns}
	for _, more := range [][]string{nil, {"--apply"}, {"--manifests", filepath.Join(t.TempDir(), "out")}} {
		got := decoded[imported](t, append(slices.Clone(args), more...)...)
		if len(got.Conflicts) != len(planted) || got.Written {
			t.Errorf("%v: %d conflicts, want %d; written: %t", more, len(got.Conflicts), len(planted), got.Written)
		}
		for row, kind := range planted {
			found := 0
			for _, c := range got.Conflicts {
				if slices.Contains(c.Rows, row) && c.Kind == kind && c.Message != "" {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%v: row %d (%s) is in %d conflicts of this kind, want 1: %s", more, row, kind, found, rows[row-1])
			}
		}
		if n, g := stored(t, ns); n != before || g != generation {
			t.Fatalf("%v: %d allocations, generation %d of the pool: before %d, %d", more, n, g, before, generation)
		}
	}
	if r := ipam(t, args...); r.code != 1 || !strings.Contains(r.stdout, "nothing was written") || !strings.Contains(r.stdout, "conflicts: 40") {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}

	file = writeFile(t, strings.Join(good, "\n"))
	args[1] = file
	preview := decoded[imported](t, args...)
	if n, g := stored(t, ns); n != before || g != generation || preview.Written || len(preview.Claims) != 300 || len(preview.Conflicts) != 0 {
		t.Fatalf("preview: %d claims, conflicts %v; %d allocations are stored", len(preview.Claims), preview.Conflicts, n)
	}
	if r := ipam(t, append(slices.Clone(args), "--apply")...); r.code != 0 || !strings.Contains(r.stdout, "300 IPAllocations for 300 tenants") {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	after, generation := stored(t, ns)
	if after != before+300 {
		t.Fatalf("%d allocations, want %d", after, before+300)
	}
	if r := ipam(t, append(slices.Clone(args), "--apply")...); r.code != 0 || !strings.HasSuffix(r.stdout, "no change\n") || !strings.Contains(r.stdout, "4960 there already") {
		t.Errorf("second import: exit code %d: %s", r.code, r.stdout)
	}
	if n, g := stored(t, ns); n != after || g != generation {
		t.Errorf("a second import changes %d allocations to %d, and the generation of the pool from %d to %d", after, n, generation, g)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		p := networkPool(ns, "pool", "", "")
		if err := admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		// Before the import the pool had 8 claims of 5 addresses, 3 VIPs and 5 addresses
		// in cooldown.
		if s := p.Status; s.AllocatedIPs != 3000+8*5+3+5 || s.ReservedIPs != 1960+256+1 || s.AllocationCount != int64(after) {
			return fmt.Errorf("the status counts %d allocated and %d reserved addresses, %d allocations", s.AllocatedIPs, s.ReservedIPs, s.AllocationCount)
		}
		return nil
	})
}

// The error of an import that fails in the middle counts the created claims, and the next
// run creates the remaining claims.
func TestImport_ContinuesAfterFailure(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.83.0.0/24", ns))
	hook := suite.RegisterWebhook(t, admin, "deny-import", suite.DenyingWebhook(t, 403, func(context.Context) {}), `object.metadata.namespace == "`+ns+`" && object.metadata.name.endsWith("-70")`,
		suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Create}, "ipallocations", butlerv1.GroupVersion.Group))
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		if err := admin.Create(ctx, newClaim(ns, "probe-70", "10.83.0.1", "10.83.0.1", "probe"), client.DryRunAll); err == nil {
			return fmt.Errorf("the webhook is not called yet")
		}
		return nil
	})
	text := "range,tenant\n10.83.0.250,\n"
	for n := range 60 {
		text += fmt.Sprintf("10.83.0.%d,team/tenant-%d\n", 10+2*n, n)
	}
	args := []string{"import", writeFile(t, text), "--to", ns + "/pool", "--apply"}
	r := run(t, cluster.Kubeconfig(), args...)
	done, _ := stored(t, ns)
	if r.code != 2 || !strings.Contains(r.stderr, fmt.Sprintf("was updated, and %d of 60 claims were created; the same command does the rest", done)) || !strings.Contains(r.stderr, "pool-10-83-0-70 (row 33)") || done == 0 || done == 60 {
		t.Errorf("exit code %d, %d stored: %s%s", r.code, done, r.stdout, r.stderr)
	}
	suite.Delete(t, admin, hook)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		return admin.Create(ctx, newClaim(ns, "probe-70", "10.83.0.1", "10.83.0.1", "probe"), client.DryRunAll)
	})
	if r := ipam(t, args...); r.code != 0 || !strings.Contains(r.stdout, fmt.Sprintf("%d there already", done+1)) {
		t.Errorf("second run: exit code %d: %s", r.code, r.stdout)
	}
	if n, _ := stored(t, ns); n != 60 {
		t.Errorf("%d allocations, want 60", n)
	}
}

// The exit code is 1 if rows that can have addresses in use are not imported, and 0 if
// the other rows are free. A file with unknown tenants completes the tenant map.
func TestImport_LeftOut(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.99.0.0/24", ns))
	file := writeFile(t, "address,vrf,tenant,status\r10.99.0.1/24,,Acme Corp,active\r10.99.0.2/24,,=Beta,active\r10.99.0.3/24,,,available\r")
	args := []string{"import", file, "--to", ns + "/pool"}
	if r := ipam(t, args...); r.code != 1 || !strings.Contains(r.stdout, "2 left out, 1 not in use\nleft out rows 2-3: the VRF \"\"") || !strings.Contains(r.stdout, "not in use row 4: free addresses") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	tenants := filepath.Join(t.TempDir(), "tenants.csv")
	args = append(args, "--vrf-map", "="+ns, "--tenant-map-file", tenants, "--apply")
	if r := run(t, cluster.Kubeconfig(), args...); r.code != 2 || !strings.Contains(r.stderr, "has a row for each of 2 unknown tenants now") {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	form, err := os.ReadFile(tenants)
	if want := "tenant,namespace/name\n'=Beta,NAMESPACE/beta\nAcme Corp,NAMESPACE/acme-corp\n"; err != nil || string(form) != want {
		t.Fatalf("%q, want %q: %v", form, want, err)
	}
	if err := os.WriteFile(tenants, bytes.ReplaceAll(form, []byte("NAMESPACE"), []byte("team")), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := ipam(t, args...); r.code != 0 || !strings.Contains(r.stdout, "2 IPAllocations for 2 tenants, 1 not in use") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if n, _ := stored(t, ns); n != 2 {
		t.Errorf("%d allocations, want 2", n)
	}
	if r := run(t, cluster.Kubeconfig(), append(args, "--tenant-names", "short")...); r.code != 2 || !strings.Contains(r.stderr, "--tenant-names=short: use exact or slug") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// import warns about columns that have content and no meaning, in one line, and lists
// them in JSON. A flag of the warning removes the column from the warning.
func TestImport_IgnoredColumns(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.88.0.0/24", ns))
	file := writeFile(t, "IP;Who;Rack\n10.88.0.1;team/jane;7\n10.88.0.2;team/joe;\n")
	args := []string{"import", file, "--to", ns + "/pool"}
	want := `warning: 2 columns without a meaning are ignored: "Who", "Rack": use --map "Who=tenant", or another field, for a column that counts, and --map "Who=ignore" for one that does not` + "\n"
	if r := ipam(t, args...); r.stderr != want || !strings.Contains(r.stdout, "2 reserved") {
		t.Errorf("%s%s", r.stderr, r.stdout)
	}
	if got := decoded[struct{ IgnoredColumns []string }](t, args...); !slices.Equal(got.IgnoredColumns, []string{"Who", "Rack"}) {
		t.Errorf("%+v", got)
	}
	if r := ipam(t, append(args, "--map", "Who=tenant", "--map", "Rack=ignore")...); r.stderr != "" || !strings.Contains(r.stdout, "2 IPAllocations for 2 tenants") {
		t.Errorf("%s%s", r.stderr, r.stdout)
	}
}

// The commands in sections Import and Export of the README print what the README shows.
func TestImport_README(t *testing.T) {
	text, err := os.ReadFile("../../cmd/kubectl-ipam/README.md")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "vlan40", "10.40.1.0/24", ""))
	kubeconfig, directory := filepath.Join(t.TempDir(), "kubeconfig"), t.TempDir()
	if err := os.WriteFile(kubeconfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	bash := func(line string) string {
		command := exec.CommandContext(t.Context(), "bash", "-c", line)
		command.Dir = directory
		command.Env = append(append(os.Environ(), cluster.KubectlEnv()...), "KUBECONFIG="+kubeconfig, "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		out, _ := command.CombinedOutput() // import with conflicts has exit code 1
		return string(out)
	}
	bash("kubectl config set-context --current --namespace=" + ns)
	commands := 0
	for _, section := range []string{"Import", "Export"} {
		_, block, found := strings.Cut(string(text), "\n## "+section+"\n")
		_, block, _ = strings.Cut(block, "```text\n$ ")
		block, _, ended := strings.Cut(block, "```")
		if !found || !ended {
			t.Fatalf("section %s of the README has no session", section)
		}
		for _, step := range strings.Split(block, "\n$ ") {
			commands++
			line, want, _ := strings.Cut(strings.TrimSuffix(step, "\n")+"\n", "\n")
			if name, isFile := strings.CutPrefix(line, "cat "); isFile {
				if err := os.WriteFile(filepath.Join(directory, name), []byte(want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := bash(line); got != want {
				t.Errorf("%s prints\n%s\nthe README shows\n%s", line, got, want)
			}
		}
	}
	if commands != 6 {
		t.Errorf("%d commands, want 6", commands)
	}
}

// An import of 1,500 claims whose stderr is no terminal prints at most a line of progress
// for each tenth, and the total.
func TestImport_ProgressInLogs(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", "10.93.0.0/20", ns))
	text := "range,tenant\n"
	for n := range 1500 {
		text += fmt.Sprintf("10.93.%d.%d,team/tenant-%d\n", n/128, n%128*2, n)
	}
	begun := time.Now()
	r := ipam(t, "import", writeFile(t, text), "--to", ns+"/pool", "--apply")
	lines := strings.Count(r.stderr, "\n")
	if slow := time.Since(begun) > 4*time.Second; lines > 11 || strings.Contains(r.stderr, "\r") || slow && !strings.Contains(r.stderr, "created 1500 of 1500 claims in ") {
		t.Errorf("%s: stderr has %d lines:\n%s", time.Since(begun), lines, r.stderr)
	}
	if n, _ := stored(t, ns); n != 1500 {
		t.Errorf("%d allocations, want 1500: %s", n, r.stdout)
	}
}

// kubectl applies the manifests of an import, and a second import finds the objects in
// the cluster.
func TestImport_Manifests(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	pool := suite.Kinds[1].Pool(ns, "10.84.0.0", "10.84.0.199").(*metal3v1.IPPool)
	suite.Create(t, admin, pool)
	file := writeFile(t, "kind;name;ranges\nPreAllocation;node-1;10.84.0.7\nIPClaim;node-1;10.84.0.7\nIPClaim;node-2;10.84.0.8\nPreAllocation;;10.84.0.9\n")
	directory := filepath.Join(t.TempDir(), "out")
	args := []string{"import", file, "--to", "ippool/" + ns + "/pool"}
	if r := ipam(t, append(slices.Clone(args), "--manifests", directory)...); r.code != 0 || !strings.Contains(r.stdout, "kubectl apply -f "+directory) {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	suite.Kubectl(t, cluster, "", "apply", "-f", directory)
	if r := ipam(t, args...); r.code != 0 || !strings.HasSuffix(r.stdout, "no change\n") {
		t.Errorf("exit code %d: %s", r.code, r.stdout)
	}
	suite.Read(t, admin, pool)
	if pool.Labels[butlerv1.LabelRoutingDomain] != ns || pool.Spec.PreAllocations["_pool-10-84-0-9"] != "10.84.0.9" {
		t.Errorf("the pool has labels %v, %v", pool.Labels, pool.Spec.PreAllocations)
	}
	if r := run(t, cluster.Kubeconfig(), append(slices.Clone(args), "--manifests", directory)...); r.code != 0 {
		t.Errorf("without changes: exit code %d: %s", r.code, r.stderr)
	}
}

// An IPAllocation that is older than its pool, and pinned outside the pool, owns nothing.
// Export leaves it out with a warning, and import accepts the exported file.
func TestExport_Unowned(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	outside := newClaim(ns, "outside", "10.89.99.5", "10.89.99.5", "web")
	for _, o := range []client.Object{outside, networkPool(ns, "pool", "10.89.0.0/24", ns), newClaim(ns, "inside", "10.89.0.5", "10.89.0.6", "web")} {
		suite.Create(t, admin, o)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(outside), outside); err != nil || outside.Status.Phase == butlerv1.PhaseFailed {
			return err
		}
		return fmt.Errorf("phase %q, want Failed", outside.Status.Phase)
	})
	r := ipam(t, "export", ns+"/pool")
	if r.stderr != "warning: left out: 1 claim without ownership of the named addresses: kubectl ipam check shows the reason\n" || strings.Contains(r.stdout, "outside") || !strings.Contains(r.stdout, ",inside,") {
		t.Errorf("%s%s", r.stderr, r.stdout)
	}
	if again := ipam(t, "import", writeFile(t, r.stdout), "--to", ns+"/pool"); again.code != 0 || !strings.HasSuffix(again.stdout, "no change\n") {
		t.Errorf("import of the export: %s%s", again.stdout, again.stderr)
	}
}

// A pool of each kind is exported, emptied, imported, and exported again as equal bytes,
// in CSV and in YAML.
func TestExport_RoundTrip(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	network := networkPool(ns, "pool", "10.85.0.0/24", ns)
	network.Spec.Reserved = []butlerv1.ReservedRange{{CIDR: "10.85.0.0/28", Description: "routers, \"old\"\nand new"}, {CIDR: "10.85.0.16/32"}, {CIDR: "10.85.0.17/32", Description: " x "}, {CIDR: "10.85.0.18/32", Description: "=1+1"}, {CIDR: "10.85.0.19/32", Description: "\x1b]0;title\x07\rfree"}}
	machines := suite.Kinds[1].Pool(ns, "10.86.0.0", "10.86.0.199").(*metal3v1.IPPool)
	machines.Name, machines.Spec.PreAllocations = "machines", map[string]metal3v1.IP{"_gateway": "10.86.0.1", "node-3": "10.86.0.30"}
	edge := suite.Kinds[4].Pool(ns, "10.87.0.0", "10.87.0.99").(*novaedgev1.ProxyIPPool)
	suite.Create(t, admin, network, machines, edge)

	var claims []client.Object
	for n := range 6 {
		a := newClaim(ns, fmt.Sprint("nodes-", n), fmt.Sprintf("10.85.0.%d", 30+8*n), fmt.Sprintf("10.85.0.%d", 34+8*n), fmt.Sprint("tenant-", n/2))
		if n%2 == 1 {
			a.Spec.Type, a.Labels = butlerv1.TypeLoadBalancer, map[string]string{butlerv1.LabelTeam: "blue"}
			a.Annotations = map[string]string{"kubernetes.io/description": "@load balancers; \"all\""}
		}
		c := suite.Kinds[1].Claim(ns, fmt.Sprint("node-", n), "").(*metal3v1.IPClaim)
		c.Spec.Pool.Name, c.Labels = "machines", map[string]string{clusterpause.LabelClusterName: "cluster-1"}
		v := suite.Kinds[4].Claim(ns, fmt.Sprint("vip-", n), "")
		w := suite.Kinds[3].Claim(ns, fmt.Sprint("machine-", n), "").(*ipamv1.IPAddressClaim)
		claims = append(claims, a, c, v, w)
	}
	suite.Create(t, admin, claims...)
	pools := []string{"networkpool/" + ns + "/pool", "ippool/" + ns + "/machines", "proxyippool/" + ns}
	exports := map[string]string{}
	for _, pool := range pools {
		for _, format := range []string{"csv", "yaml"} {
			exports[pool+format] = ipam(t, "export", pool, "-o", format).stdout
			if n := strings.Count(exports[pool+format], ns); pool == pools[2] && n != 6 { // names of VIPs begin with the namespace
				t.Errorf("%s: %d VIPs: %s", pool, n, exports[pool+format])
			}
		}
	}
	if text := exports[pools[0]+"csv"]; strings.Contains(text, ",=") || !strings.Contains(text, ",'=1+1\n") || strings.Count(text, ",\"'@load") != 3 {
		t.Errorf("the export has formulas: %s", text)
	}
	if r := ipam(t, "who", "10.85.0.19", "--domain", ns); strings.ContainsAny(r.stdout, "\x1b\x07\r") || !strings.Contains(r.stdout, `\x1b]0;title\x07\rfree`) {
		t.Errorf("who prints %q", r.stdout)
	}
	for _, format := range []string{"csv", "yaml"} {
		for _, o := range claims {
			suite.Delete(t, admin, o)
		}
		suite.Change(t, admin, network, func(p *butlerv1.NetworkPool) { p.Spec.Reserved = nil })
		suite.Change(t, admin, machines, func(p *metal3v1.IPPool) { p.Spec.PreAllocations = nil })
		for _, pool := range pools {
			before := exports[pool+format]
			suite.Eventually(t, suite.Soon, func(context.Context) error { // until the releases are complete, addresses are withheld or granted
				r := run(t, cluster.Kubeconfig(), "import", writeFile(t, before), "--to", pool, "--apply")
				if r.code != 0 {
					return fmt.Errorf("import of %s: exit code %d: %s%s", pool, r.code, r.stdout, r.stderr)
				}
				return nil
			})
			for _, other := range []string{"csv", "yaml"} {
				if after := ipam(t, "export", pool, "-o", other).stdout; after != exports[pool+other] {
					t.Errorf("%s: %s after the import of %s:\n%s\nbefore:\n%s", pool, other, format, after, exports[pool+other])
				}
			}
		}
	}
	if !bytes.Contains([]byte(exports[pools[0]+"csv"]), []byte("IPAddressClaim,machine-5,")) {
		t.Errorf("the export lacks claims: %s", exports[pools[0]+"csv"])
	}
}
