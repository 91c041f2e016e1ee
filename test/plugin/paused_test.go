package plugin

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The manager writes nothing to an IPPool and its claims while they are paused: plugin
// and pages show why the claims wait.
func TestPaused_IsExplained(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	start, end := metal3v1.IP("10.72.0.1"), metal3v1.IP("10.72.0.9")
	of := func(name, cluster string) *metal3v1.IPPool {
		return &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{butlerv1.LabelRoutingDomain: ns + name}}, Spec: metal3v1.IPPoolSpec{
			NamePrefix: name, ClusterName: ptr.To(cluster), Pools: []metal3v1.Pool{{Start: &start, End: &end}}, Prefix: 24,
		}}
	}
	claim := func(name, pool string) *metal3v1.IPClaim {
		return &metal3v1.IPClaim{ObjectMeta: meta(name), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: pool}}}
	}
	named := claim("named", "orphaned")
	named.Annotations = map[string]string{metal3v1.AnnotationIPAddress: "10.72.0.5"}
	network := networkPool(ns, "network", "10.73.0.0/24", ns)
	network.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
	waits := suite.Kinds[0].Claim(ns, "allocation", "").(*butlerv1.IPAllocation)
	waits.Spec.PoolRef.Name = "network"
	suite.Create(t, admin,
		&clusterv1.Cluster{ObjectMeta: meta("resting"), Spec: clusterv1.ClusterSpec{
			Paused: ptr.To(true), InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Cluster", Name: "resting"},
		}},
		of("orphaned", "gone"), of("resting", "resting"), network,
		claim("of-no-cluster", "orphaned"), claim("of-paused-cluster", "resting"), named, waits,
		&ipamv1.IPAddressClaim{ObjectMeta: meta("second"), Spec: ipamv1.IPAddressClaimSpec{
			ClusterName: "lost", PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "network"},
		}},
	)
	reasons := map[string]string{
		"of-no-cluster":     "Cluster gone of IPPool orphaned does not exist: an address is assigned when that has changed",
		"of-paused-cluster": "Cluster resting of IPPool resting is paused: an address is assigned when that has changed",
		"named":             "Cluster gone of IPPool orphaned does not exist: an address is assigned when that has changed",
		"second":            "Cluster lost of IPAddressClaim second does not exist: an address is assigned when that has changed",
		"allocation":        " is paused",
	}
	notes := map[string]string{"orphaned": "Cluster gone of IPPool orphaned does not exist", "resting": "Cluster resting of IPPool resting is paused", "network": "paused"}
	claims, pools, findings := ipam(t, "claims", "-n", ns), ipam(t, "pools", "-n", ns), run(t, cluster.Kubeconfig(), "check", "-n", ns, "--grace=0s")
	pages := startUI(t, cluster.Kubeconfig())
	poolsPage, claimsPage := pages.mustGet(t, "/pools"), ""
	for _, pool := range []string{"IPPool/" + ns + "/orphaned", "IPPool/" + ns + "/resting", "NetworkPool/" + ns + "/network"} {
		claimsPage += pages.mustGet(t, "/claims?pool="+pool) // the list of all claims has several pages
	}
	viewer := run(t, viewerKubeconfig(t, ns+"-viewer", ns), "claims", "-n", ns)
	for claim, reason := range reasons {
		for where, text := range map[string]string{"claims": claims.stdout, "claims of a viewer": viewer.stdout, "the page of claims": claimsPage} {
			if !strings.Contains(text, reason) {
				t.Errorf("%s does not show why %s waits, %q:\n%s", where, claim, reason, text)
			}
		}
	}
	for _, claim := range []string{"of-no-cluster", "of-paused-cluster", "named", "allocation"} {
		if !strings.Contains(findings.stdout, ns+"/"+claim+" has ") || !strings.Contains(findings.stdout, reasons[claim]) {
			t.Errorf("check does not show why %s waits:\n%s", claim, findings.stdout)
		}
	}
	if strings.Contains(findings.stdout, "release addresses of its pool") {
		t.Errorf("check has a remedy that does not help:\n%s", findings.stdout)
	}
	for pool, note := range notes {
		for where, text := range map[string]string{"pools": pools.stdout, "the page of pools": poolsPage} {
			if !strings.Contains(text, note) {
				t.Errorf("%s has no note about %s, %q:\n%s", where, pool, note, text)
			}
		}
	}
}
