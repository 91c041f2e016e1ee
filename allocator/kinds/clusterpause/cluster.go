// Package clusterpause has the rules by which objects of any kind wait for a paused or
// missing Cluster of Cluster API, and the marks of clusterctl on objects that it moves.
//
// Every function is pure.
package clusterpause

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Names of Cluster API that belong to no single kind.
const (
	// annotationPaused makes every controller leave an object alone.
	annotationPaused = "cluster.x-k8s.io/paused"
	// annotationDeleteForMove marks an object that clusterctl deletes here after a move
	// to another cluster.
	annotationDeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// AnnotationBlockMove makes clusterctl wait before a move.
	AnnotationBlockMove = "clusterctl.cluster.x-k8s.io/block-move"
	// LabelClusterName names the Cluster of an object.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	clusterGroup     = "cluster.x-k8s.io"
)

// Cluster is the relevant state of a Cluster of Cluster API.
type Cluster struct {
	UID    types.UID
	Paused bool // spec.paused
	// HasPausedAnnotation: the Cluster has the annotation cluster.x-k8s.io/paused.
	// Cluster API's own objects wait while the annotation is set; Metal3's objects do
	// not.
	HasPausedAnnotation bool
	// Unknown: the Cluster has not been looked up yet. An unknown Cluster counts as
	// present and paused.
	Unknown bool
}

// Clusters finds Clusters. A missing Cluster may be created later.
type Clusters interface {
	Cluster(namespace, name string) (Cluster, bool)
}

// WaitError reports that a claim gets no address yet, because the pool, the claim or
// their Cluster is paused, or the Cluster does not exist yet. A claim moved from another
// cluster may bring an address that is not stored here yet.
type WaitError struct {
	Reason  string
	Missing bool // the Cluster does not exist
}

func (e *WaitError) Error() string {
	return e.Reason + ": an address is assigned when that has changed"
}

// IsPaused reports whether an object has the annotation that pauses reconciliation.
func IsPaused(o metav1.Object) bool {
	_, paused := o.GetAnnotations()[annotationPaused]
	return paused
}

// Check returns a *WaitError while an object must not be reconciled, else nil.
// cluster is the name of the Cluster in the object's namespace, or "" for no Cluster. A
// deleted object does not wait for a missing Cluster.
func Check(o metav1.Object, kind, cluster string, clusters Clusters) error {
	if IsPaused(o) {
		return &WaitError{Reason: fmt.Sprintf("%s %s is paused", kind, o.GetName())}
	}
	if cluster == "" {
		return nil
	}
	c, there := clusters.Cluster(o.GetNamespace(), cluster)
	switch {
	case !there && o.GetDeletionTimestamp() != nil:
	case !there:
		return &WaitError{Reason: fmt.Sprintf("Cluster %s of %s %s does not exist", cluster, kind, o.GetName()), Missing: true}
	case c.Unknown:
		return &WaitError{Reason: fmt.Sprintf("Cluster %s of %s %s has not been looked for yet", cluster, kind, o.GetName())}
	case c.Paused:
		return &WaitError{Reason: fmt.Sprintf("Cluster %s of %s %s is paused", cluster, kind, o.GetName())}
	}
	return nil
}

// ListClusters returns the names of the Clusters in an object's label and owner
// references.
func ListClusters(o metav1.Object) (names []string) {
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

// IsMarkedMoved reports whether an object has the annotation of clusterctl that marks the
// object as moved to another cluster. Every author with write access can set the
// annotation. Whether the object was moved is decided after its deletion
// (state.DecideMoved), and requires that its Cluster was paused.
func IsMarkedMoved(o metav1.Object) bool {
	_, away := o.GetAnnotations()[annotationDeleteForMove]
	return away
}
