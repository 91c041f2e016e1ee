package plugin

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"butlerlabs.dev/ipam/test/suite"
)

// Each line of -o name is arguments of kubectl get, with the namespace.
func TestOutput_NameIsForKubectl(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	edge := suite.Kinds[4].Pool(ns, "10.91.1.0", "10.91.1.9")
	suite.Create(t, admin, networkPool(ns, "network", "10.91.0.0/24", ns), suite.Kinds[1].Pool(ns, "10.91.2.0", "10.91.2.9"), edge)
	suite.Create(t, admin, suite.Kinds[1].Claim(ns, "node", ""), suite.Kinds[4].Claim(ns, "vip", ""))
	pools := ipam(t, "pools", "--domain", ns, "-o", "name").stdout
	lines := slices.Sorted(strings.Lines(pools))
	want := []string{"ippool.ipam.metal3.io/pool -n " + ns + "\n", "networkpool.butler.butlerlabs.dev/network -n " + ns + "\n", "proxyippool.novaedge.io/" + edge.GetName() + "\n"}
	if !slices.Equal(lines, want) {
		t.Errorf("pools:\n%s\nwant:\n%s", pools, want)
	}
	claims := ipam(t, "claims", "--domain", ns, "-o", "name").stdout
	if !strings.Contains(claims, "ipclaim.ipam.metal3.io/node -n "+ns+"\n") || strings.Count(claims, "\n") != 2 {
		t.Errorf("claims:\n%s", claims)
	}
	for line := range strings.Lines(pools + claims) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if out, _ := suite.Kubectl(t, cluster, "", append(append([]string{"get"}, strings.Fields(line)...), "-o", "name")...); strings.TrimSpace(out) != name {
			t.Errorf("kubectl get %sprints %s", line, out)
		}
	}
}

// CSV has decimal numbers, also beyond int64, and times in RFC 3339.
func TestOutput_CSVIsForPrograms(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	small := newClaim(ns, "small", "10.92.0.0", "10.92.0.63", "web")
	small.Spec.PoolRef.Name = "small"
	suite.Create(t, admin, networkPool(ns, "pool", "2001:db8:92::/64", ns), networkPool(ns, "small", "10.92.0.0/24", ns))
	suite.Create(t, admin, newClaim(ns, "web", "2001:db8:92::5", "2001:db8:92::6", "web"), small)
	table := func(key string, args ...string) map[string]map[string]string {
		records, err := csv.NewReader(strings.NewReader(ipam(t, append(args, "-o", "csv")...).stdout)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]map[string]string{}
		for _, record := range records[1:] {
			row := map[string]string{}
			for n, cell := range record {
				row[records[0][n]] = cell
			}
			rows[row[key]] = row
		}
		return rows
	}
	pools, claims := table("pool", "pools", "--domain", ns), table("name", "claims", "--domain", ns)
	for _, cell := range []struct{ got, want string }{
		{pools[ns+"/pool"]["size"], "18446744073709551616"}, {pools[ns+"/pool"]["free"], "18446744073709551614"}, {pools[ns+"/pool"]["largest"], "18446744073709551609"},
		{pools[ns+"/pool"]["used"], "2"}, {pools[ns+"/small"]["size"], "256"}, {pools[ns+"/small"]["free"], "192"}, {pools[ns+"/small"]["used"], "64"},
		{pools[ns+"/small"]["fragmentation"], "0"}, {claims["small"]["count"], "64"}, {claims["web"]["count"], "2"}, {fmt.Sprint(len(claims)), "2"},
		{table("range", "free", ns+"/pool")["2001:db8:92::7-2001:db8:92:0:ffff:ffff:ffff:ffff"]["size"], "18446744073709551609"},
		{table("range", "map", ns+"/pool", "--ranges")["2001:db8:92::7-2001:db8:92:0:ffff:ffff:ffff:ffff"]["size"], "18446744073709551609"},
	} {
		if cell.got != cell.want {
			t.Errorf("cell %q, want %q", cell.got, cell.want)
		}
	}
	if created, err := time.Parse(time.RFC3339, claims["web"]["created"]); err != nil || time.Since(created).Abs() > time.Hour {
		t.Errorf("created %q: %v", claims["web"]["created"], err)
	}
}

// A command denies a format that it does not print, and version prints a document. The
// error for a value of a flag names the rule.
func TestOutput_Formats(t *testing.T) {
	v := decoded[struct{ APIVersion, Kind, Version string }](t, "version")
	if v.Kind != "Version" || v.Version != strings.TrimSpace(ipam(t, "version").stdout) || v.APIVersion != "kubectl-ipam.butlerlabs.dev/v1" {
		t.Errorf("%+v", v)
	}
	large := strings.Repeat("9", 20)
	for args, want := range map[string]string{
		"version -o csv":             "error: --output=csv: version takes table, json, yaml",
		"export pool -o json":        "error: --output=json: export takes table, csv, yaml",
		"import x --to pool -o csv":  "error: --output=csv: import takes table, wide, json, yaml",
		"fit pool --count 4 -o name": "error: --output=name: fit takes table, wide, json, yaml",
		"pools -o text":              "error: --output=text: pools takes table, wide, json, yaml, csv, name",
		"fit pool --count abc":       "error: --count=abc: write a whole number",
		"free pool --min 1e9":        "error: --min=1e9: write a whole number",
		"free pool --min " + large:   "error: --min=" + large + ": the number is too large",
		"check --grace soon":         "error: --grace=soon: write a duration such as 90s, 10m or 1h30m",
		"claims --not-ready=perhaps": "error: --not-ready=perhaps: write true or false",
		"who 10.0.0.300 --log -":     `error: --at and --log answer for an address, a range or a network: "10.0.0.300" is not an IP address`,
	} {
		if r := run(t, cluster.Kubeconfig(), strings.Fields(args)...); r.code == 0 || strings.TrimSpace(r.stderr) != want {
			t.Errorf("%s: exit code %d: %s%swant: %s", args, r.code, r.stdout, r.stderr, want)
		}
	}
}
