package pools

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// everyCluster has this Cluster under every name.
type everyCluster clusterpause.Cluster

func (c everyCluster) Cluster(string, string) (clusterpause.Cluster, bool) {
	return clusterpause.Cluster(c), true
}

func TestSetOwners_AddsTheClusterBesideOtherOwners(t *testing.T) {
	owned := func(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
	}
	var (
		ours    = owned("cluster.x-k8s.io/v1beta2", "Cluster", "c", "new")
		earlier = owned("cluster.x-k8s.io/v1beta1", "Cluster", "c", "new")
		stale   = owned("cluster.x-k8s.io/v1beta1", "Cluster", "c", "old")
		another = owned("cluster.x-k8s.io/v1beta2", "Cluster", "d", "other")
		foreign = owned("provisioning.cattle.io/v1", "Cluster", "c", "foreign")
		core    = owned("v1", "Cluster", "c", "core")
	)
	for name, tc := range map[string]struct {
		owners, want []metav1.OwnerReference
		changed      bool
	}{
		"none":                          {nil, []metav1.OwnerReference{ours}, true},
		"itself":                        {[]metav1.OwnerReference{ours}, []metav1.OwnerReference{ours}, false},
		"itself in another version":     {[]metav1.OwnerReference{earlier}, []metav1.OwnerReference{earlier}, false},
		"one of that name that is gone": {[]metav1.OwnerReference{another, stale}, []metav1.OwnerReference{another, ours}, true},
		"a Cluster of another group":    {[]metav1.OwnerReference{foreign, core}, []metav1.OwnerReference{foreign, core, ours}, true},
		"both":                          {[]metav1.OwnerReference{foreign, ours}, []metav1.OwnerReference{foreign, ours}, false},
		"one of each":                   {[]metav1.OwnerReference{foreign, stale}, []metav1.OwnerReference{foreign, ours}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{ClusterName: ptr.To("c")}}
			p.Labels = map[string]string{clusterpause.LabelClusterName: "c", v1alpha1.LabelProvider: v1alpha1.Provider}
			p.OwnerReferences = tc.owners
			if changed := setClusterMetadata(p, everyCluster{UID: "new"}); changed != tc.changed {
				t.Errorf("changed: %v", changed)
			}
			if diff := cmp.Diff(tc.want, p.OwnerReferences); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
}
