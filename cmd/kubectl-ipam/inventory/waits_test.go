package inventory

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// The reason of a claim without an address names what it waits for, also where the status
// of the claim, by the contract of its API, has no reason.
func TestReasonOf_Waits(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", ResourceVersion: "1", Annotations: map[string]string{}}
	}
	ipPool := func(cluster string, paused bool) metav1.Object {
		p := &metal3v1.IPPool{ObjectMeta: meta("pool"), Spec: metal3v1.IPPoolSpec{Pools: []metal3v1.Pool{{Start: ptr.To(metal3v1.IP("10.0.0.1")), End: ptr.To(metal3v1.IP("10.0.0.9"))}}}}
		if cluster != "" {
			p.Spec.ClusterName = &cluster
		}
		if paused {
			p.Annotations["cluster.x-k8s.io/paused"] = ""
		}
		return p
	}
	named := &metal3v1.IPClaim{ObjectMeta: meta("claim"), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "pool"}}}
	named.Annotations[metal3v1.AnnotationIPAddress] = "10.0.0.5"
	ipClaim := &metal3v1.IPClaim{ObjectMeta: meta("claim"), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "pool"}}}
	ofCluster := func(cluster string) metav1.Object {
		return &ipamv1.IPAddressClaim{ObjectMeta: meta("claim"), Spec: ipamv1.IPAddressClaimSpec{ClusterName: cluster, PoolRef: ipamv1.IPPoolReference{APIGroup: "ipam.metal3.io", Kind: "IPPool", Name: "pool"}}}
	}
	paused := &butlerv1.NetworkPool{ObjectMeta: meta("pool"), Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/24"}}
	paused.Annotations["cluster.x-k8s.io/paused"] = ""
	allocation := &butlerv1.IPAllocation{ObjectMeta: meta("claim"), Spec: butlerv1.IPAllocationSpec{PoolRef: butlerv1.LocalObjectReference{Name: "pool"}}}
	stored := Clusters{"ns/web": {}, "ns/moving": {Paused: true}, "ns/marked": {HasPausedAnnotation: true}}
	const then = ": an address is assigned when that has changed"
	for name, tc := range map[string]struct {
		pool, claim metav1.Object
		clusters    Clusters
		depends     bool // on the Clusters
		missing     bool
		want        string
		note        string // of the pool
	}{
		"Cluster of the claim is missing": {ipPool("", false), ofCluster("nope"), stored, true, true, "Cluster nope of IPAddressClaim claim does not exist" + then, ""},
		"Cluster of the claim is paused":  {ipPool("", false), ofCluster("moving"), stored, true, false, "Cluster moving of IPAddressClaim claim is paused" + then, ""},
		"annotation of the Cluster":       {ipPool("", false), ofCluster("marked"), stored, true, false, "Cluster marked of IPAddressClaim claim is paused" + then, ""},
		"Cluster of the pool is missing":  {ipPool("nope", false), ipClaim, stored, true, true, "Cluster nope of IPPool pool does not exist" + then, "Cluster nope of IPPool pool does not exist"},
		"claim with an address":           {ipPool("nope", false), named, stored, true, true, "Cluster nope of IPPool pool does not exist" + then, "Cluster nope of IPPool pool does not exist"},
		"Cluster of the pool is paused":   {ipPool("moving", false), ipClaim, stored, true, false, "Cluster moving of IPPool pool is paused" + then, "Cluster moving of IPPool pool is paused"},
		"Cluster is stored":               {ipPool("web", false), ofCluster("web"), stored, true, false, "", ""},
		"Clusters are not known":          {ipPool("web", false), ofCluster("nope"), nil, true, false, "", ""},
		"no Cluster":                      {ipPool("", false), ipClaim, stored, false, false, "", ""},
		"paused IPPool":                   {ipPool("", true), ipClaim, nil, false, false, "IPPool pool is paused" + then, "paused"},
		"paused NetworkPool":              {paused, allocation, nil, false, false, "NetworkPool pool is paused" + then, "paused"},
	} {
		i := New(now, nil)
		i.Add(tc.pool)
		i.Add(tc.claim)
		if got := i.NamesCluster(); got != tc.depends {
			t.Errorf("%s: depends on Clusters: %t", name, got)
		}
		i.SetClusters(tc.clusters, "")
		if note := i.NoteOfPause(i.Pools()[0]); note != tc.note {
			t.Errorf("%s: note %q, want %q", name, note, tc.note)
		}
		c := i.Claims()[0]
		if wait := i.WaitOf(c); c.Reason != tc.want || (wait != nil) != (tc.want != "") || wait != nil && wait.Missing != tc.missing {
			t.Errorf("%s: reason %q, want %q; %+v", name, c.Reason, tc.want, wait)
		}
	}
}
