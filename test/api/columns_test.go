package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// table is the output of kubectl get in lines, each split at spaces.
func table(t *testing.T, args ...string) [][]string {
	t.Helper()
	out, _ := suite.Kubectl(t, cluster, "", append([]string{"get", "--namespace=" + namespace}, args...)...)
	var lines [][]string
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// everyKind lends one object of each kind, all of the name "every".
func everyKind(t *testing.T) {
	t.Helper()
	m := metav1.ObjectMeta{Namespace: namespace, Name: "every"}
	bare := metav1.ObjectMeta{Name: "every"}
	asked := m
	asked.Annotations = map[string]string{metal3v1.AnnotationIPAddress: "192.168.0.7"}
	start, end, gateway := metal3v1.IP("192.168.0.1"), metal3v1.IP("192.168.0.9"), metal3v1.IP("192.168.0.254")
	pool, claim := newPool("every"), newClaim("every")
	claim.Spec.PoolRef.Name = "every"
	suite.CreateForTest(t, admin, pool, claim,
		&metal3v1.IPPool{ObjectMeta: m, Spec: metal3v1.IPPoolSpec{NamePrefix: "every", Gateway: &gateway, Pools: []metal3v1.Pool{{Start: &start, End: &end}}}},
		&metal3v1.IPClaim{ObjectMeta: asked, Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "every"}}},
		&metal3v1.IPAddress{ObjectMeta: m, Spec: metal3v1.IPAddressSpec{
			Pool: corev1.ObjectReference{Name: "every"}, Claim: corev1.ObjectReference{Name: "every"}, Address: "192.168.0.7", Prefix: 24, Gateway: &gateway,
		}},
		&butlerv1.AllocationHistory{ObjectMeta: m, Spec: butlerv1.AllocationHistorySpec{Pool: "NetworkPool/ns/pool", Day: "2026-11-28", Part: 1, Count: 7}},
		&butlerv1.ProviderConfig{ObjectMeta: m, Spec: butlerv1.ProviderConfigSpec{Provider: "harvester"}},
		&novaedgev1.ProxyIPPool{ObjectMeta: bare, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.200.0.0/24"}}},
		&novaedgev1.ProxyVIP{ObjectMeta: bare, Spec: novaedgev1.ProxyVIPSpec{
			Address: "10.200.0.5/32", PoolRef: &novaedgev1.PoolReference{Name: "every"}, Mode: novaedgev1.ModeBGP, Ports: []int32{80},
		}},
	)
}

func TestColumns_EveryKind(t *testing.T) {
	everyKind(t)
	for resource, tc := range map[string]struct {
		plain []string // cells of the object, without its age
		wide  string   // header of the further columns
	}{
		"networkpools":               {[]string{"every", "10.40.0.0/24"}, "READY GATEWAY ROUTING DOMAIN LARGEST FREE BLOCK FRAGMENTATION RESERVED GRANTED"},
		"ipallocations":              {[]string{"every", "every", "my-cluster", "nodes"}, "COUNT READY TENANT NAMESPACE TEAM ORIGIN"},
		"ippools.ipam.metal3.io":     {[]string{"every"}, "GATEWAY PREFIX ROUTING DOMAIN"},
		"ipclaims.ipam.metal3.io":    {[]string{"every", "192.168.0.7", "every"}, "IPADDRESS ERROR ROUTING DOMAIN"},
		"ipaddresses.ipam.metal3.io": {[]string{"every", "192.168.0.7", "every", "every"}, "PREFIX GATEWAY"},
		"providerconfigs":            {[]string{"every", "harvester"}, "AVAILABLE FURTHER TENANTS"},
		"proxyippools":               {[]string{"every"}, "READY ROUTING DOMAIN CIDRS GRANTED"},
		"allocationhistories":        {[]string{"every", "NetworkPool/ns/pool", "2026-11-28", "1", "7"}, "INCOMPLETE AGE"},
		"proxyvips":                  {[]string{"every", "10.200.0.5/32"}, "ROUTING DOMAIN"},
	} {
		t.Run(resource, func(t *testing.T) {
			lines := table(t, resource, "every")
			if got := strings.Join(lines[1], " "); !strings.HasPrefix(got, strings.Join(tc.plain, " ")) {
				t.Errorf("%q, want %q first", got, tc.plain)
			}
			if got := strings.Join(table(t, resource, "every", "-o", "wide")[0], " "); !strings.Contains(got, tc.wide) {
				t.Errorf("%q lacks %q", got, tc.wide)
			}
		})
	}
}

// The summary in the status of a pool is a column of its own, which reads well for IPv6
// too. Of a ProxyIPPool it is a wide one: NovaEdge documents the others.
func TestColumns_Summary(t *testing.T) {
	everyKind(t)
	for resource, o := range map[string]client.Object{
		"networkpools": &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "every"}},
		"proxyippools": &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "every"}},
	} {
		const summary = "6000 allocated of a /64"
		if err := admin.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"summary":"`+summary+`"}}`))); err != nil {
			t.Fatal(err)
		}
		lines := table(t, resource, "every", "-o", "wide")
		if header, line := strings.Join(lines[0], " "), strings.Join(lines[1], " "); !strings.Contains(header, "SUMMARY") || !strings.Contains(line, summary) {
			t.Errorf("kubectl get %s lacks the summary: %s: %s", resource, header, line)
		}
	}
}

func TestCategory_EveryKind(t *testing.T) {
	everyKind(t)
	out, _ := suite.Kubectl(t, cluster, "", "get", "ipam", "--namespace="+namespace, "-o", "name")
	for _, want := range []string{"networkpool.butler", "ipallocation.butler", "providerconfig.butler", "ippool.ipam.metal3.io", "ipclaim.ipam.metal3.io", "ipaddress.ipam.metal3.io",
		"proxyippool.novaedge.io", "proxyvip.novaedge.io"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get ipam lacks %s: %s", want, out)
		}
	}
}

// Each kind that names a pool can be selected by the name of that pool.
func TestSelectableFields_Pool(t *testing.T) {
	everyKind(t)
	for field, list := range map[string][]client.ObjectList{
		"spec.poolRef.name": {&butlerv1.IPAllocationList{}, &novaedgev1.ProxyVIPList{}},
		"spec.pool.name":    {&metal3v1.IPClaimList{}, &metal3v1.IPAddressList{}},
	} {
		for _, all := range list {
			for pool, want := range map[string]int{"every": 1, "other": 0} {
				if err := admin.List(t.Context(), all, client.MatchingFields{field: pool}); err != nil {
					t.Fatalf("%T: %v", all, err)
				}
				if got := len(items(t, all)); got != want {
					t.Errorf("%T of pool %s: %d, want %d", all, pool, got, want)
				}
			}
		}
	}
}

func items(t *testing.T, list client.ObjectList) []runtime.Object {
	t.Helper()
	all, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
