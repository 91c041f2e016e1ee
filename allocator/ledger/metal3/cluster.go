package metal3

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Words of Cluster API that are neither of one of its kinds nor of ours.
const (
	// annotationPaused on an object has everybody leave it alone.
	annotationPaused = "cluster.x-k8s.io/paused"
	// annotationDeleteForMove is on an object that clusterctl deletes here because it lives on in another cluster.
	annotationDeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// AnnotationBlockMove on an object has clusterctl wait before it moves anything.
	AnnotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move"
	// LabelClusterName names the Cluster that an object belongs to.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	clusterGroup     = "cluster.x-k8s.io"
)

// Cluster is what there is to know of a Cluster of Cluster API.
type Cluster struct {
	UID    types.UID
	Paused bool // spec.paused
	// Annotated says that the Cluster carries the annotation cluster.x-k8s.io/paused. Cluster API's own objects wait for it, Metal3's do not.
	Annotated bool
	// Unknown says that nobody knows yet whether it is there. It counts as there, and as paused.
	Unknown bool
}

// Clusters finds Clusters. One that is not there may not have come yet.
type Clusters interface {
	Cluster(namespace, name string) (Cluster, bool)
}

// WaitError says that a claim gets no address before somebody says so: pool or claim are paused, or their Cluster is, or that is not there yet.
// Who comes from another cluster may bring an address along that is not here yet.
type WaitError struct {
	Why     string
	Missing bool // it is for a Cluster that does not exist
}

func (e *WaitError) Error() string { return e.Why + ": an address is assigned when that has changed" }

// Paused tells whether an object carries the annotation that pauses its reconciliation.
func Paused(o metav1.Object) bool {
	_, paused := o.GetAnnotations()[annotationPaused]
	return paused
}

// Wait says whether an object may be worked on that belongs to a Cluster of its namespace, or to none (""): it is nil, or a *WaitError. What is
// being deleted does not wait for a Cluster that is not there.
func Wait(o metav1.Object, kind, cluster string, clusters Clusters) error {
	if Paused(o) {
		return &WaitError{Why: fmt.Sprintf("%s %s is paused", kind, o.GetName())}
	}
	if cluster == "" {
		return nil
	}
	c, there := clusters.Cluster(o.GetNamespace(), cluster)
	switch {
	case !there && o.GetDeletionTimestamp() != nil:
	case !there:
		return &WaitError{Why: fmt.Sprintf("Cluster %s of %s %s does not exist", cluster, kind, o.GetName()), Missing: true}
	case c.Unknown:
		return &WaitError{Why: fmt.Sprintf("Cluster %s of %s %s has not been looked for yet", cluster, kind, o.GetName())}
	case c.Paused:
		return &WaitError{Why: fmt.Sprintf("Cluster %s of %s %s is paused", cluster, kind, o.GetName())}
	}
	return nil
}

// WaitPool is Wait for a pool.
func WaitPool(p *v1alpha1.IPPool, clusters Clusters) error {
	cluster := ""
	if p.Spec.ClusterName != nil {
		cluster = *p.Spec.ClusterName
	}
	return Wait(p, "IPPool", cluster, clusters)
}

// clustersOf is the Clusters that an object says it belongs to: by its label, and by its owners.
func clustersOf(o metav1.Object) (names []string) {
	if name := o.GetLabels()[LabelClusterName]; name != "" {
		names = append(names, name)
	}
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Cluster" && schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group == clusterGroup && !slices.Contains(names, owner.Name) {
			names = append(names, owner.Name)
		}
	}
	return names
}

// Away tells whether an object is marked as one that is deleted here because it lives on in another cluster. Anybody who may write to it can mark it:
// the mark counts only while its Cluster is paused, as clusterctl pauses that before it marks anything.
func Away(o metav1.Object) bool {
	_, away := o.GetAnnotations()[annotationDeleteForMove]
	return away
}
