package cluster

import (
	"slices"
	"testing"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
)

// The warnings about objects that were not read are at most two lines, sorted by
// resource.
func TestDescribeLeftOut(t *testing.T) {
	viewer := map[string]string{}
	for _, of := range resources {
		if viewer[of.name] = "team-a"; of.clusterScoped {
			viewer[of.name] = ""
		}
	}
	for name, test := range map[string]struct {
		user     string
		leftOut  map[string]string
		complete bool
		want     []string
	}{
		"all read": {},
		"viewer of a namespace": {leftOut: viewer, want: []string{
			"you may list only namespace team-a: objects of other namespaces are not shown, and addresses of their claims are shown as free",
			"not read, as you may not list them: proxyippools, proxyvips",
		}},
		"console": {user: "the console", leftOut: map[string]string{novaedge.ResourceProxyVIP: "", butler.ResourceIPAllocation: ""}, want: []string{
			"not read, as the console may not list them: ipallocations, proxyvips",
		}},
		"only pools of a namespace": {leftOut: map[string]string{butler.ResourceNetworkPool: "team-a", metal3.ResourceIPPool: "team-a"}, complete: true, want: []string{
			"you may list only ippools, networkpools of namespace team-a: pools of other namespaces are not shown",
		}},
	} {
		if got := describeLeftOut(test.user, test.leftOut, test.complete); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
