package plugin

import (
	"strings"
	"testing"

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
			if tables = append(tables, table); r.code != 1 || strings.Count(table, "\n") != options.lines || strings.HasPrefix(table, "RANGE ") != (options.lines == 3) || !strings.Contains(table, "IPAllocation "+ns+"/web ") {
				t.Errorf("%v %v: exit code %d: %s", change, options.flags, r.code, r.stdout)
			}
		}
		if tables[0] != tables[1] {
			t.Errorf("%v: the tables differ:\n%s\n%s", options.flags, tables[0], tables[1])
		}
	}
}
