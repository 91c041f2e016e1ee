package pools

import (
	"context"
	"errors"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get;list;watch;patch
// No code here deletes a pool: with OwnerReferencesPermissionEnforcement, the API server
// requires the right to delete an object from a client that sets its owner references.
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=delete
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/status,verbs=update

// IPPools is the adapter of IPPools.
var IPPools Adapter[*v1alpha1.IPPool] = ipPools{}

// ipPools writes the owner reference of an IPPool, its list of owned addresses, and its
// cooldown list.
type ipPools struct{}

var _ pausable[*v1alpha1.IPPool] = ipPools{}

func (ipPools) NewObject() *v1alpha1.IPPool { return &v1alpha1.IPPool{} }

func (ipPools) NewList() client.ObjectList { return &v1alpha1.IPPoolList{} }

func (ipPools) ToPool(p *v1alpha1.IPPool) (ledger.Pool, field.ErrorList) {
	return metal3.ConvertPool(p, metal3.NewRandomSource())
}

func (ipPools) finalizerName() string { return v1alpha1.FinalizerIPPool }

func (ipPools) checkManaged(d *deps, p *v1alpha1.IPPool) error {
	if clusterpause.IsMarkedMoved(p) {
		return errMoving
	}
	return metal3.CheckPoolWait(p, d.Clusters)
}

// errMoving is why a pool that clusterctl moves is not managed.
var errMoving = errors.New("it is moved to another cluster")

// writeStatus writes no number of granted addresses: the status has the schema of Metal3,
// and an annotation would cost a further write for each create, as a write of the status
// changes no annotation. The gauge butler_network_pool_granted_ips has the number.
func (ipPools) writeStatus(ctx context.Context, d *deps, before, p *v1alpha1.IPPool, usage ledger.Usage, m *memory) (reconcile.Result, error) {
	key := metal3.IPPoolKey(p.Namespace, p.Name)
	if setClusterMetadata(p, d.Clusters) {
		return reconcile.Result{}, d.IgnoreStale(ctx, before, d.SaveObject(ctx, before, p))
	}
	done, again := d.writeCooldownList(ctx, before, key, d.Ledger.RangesToRecord(key), m)
	if done {
		return reconcile.Result{}, nil
	}
	owned := d.Ledger.OwnedThrough(key)
	indexes := indexesOf(owned)
	if unlisted := metal3.BoundIndexes(indexes); unlisted > 0 && m.mayReport(eventStatusListFull, d.Now()) {
		d.reportIndexesUnlisted(p, unlisted)
	}
	switch {
	case p.Status.LastUpdated == nil && len(indexes) == 0:
		p.Status.LastUpdated = p.CreationTimestamp.DeepCopy()
	case p.Status.LastUpdated == nil || !equalIndexes(p.Status.Indexes, indexes):
		p.Status.LastUpdated = ptr.To(metav1.NewTime(d.Wall()))
	}
	p.Status.Indexes = indexes
	setCapacity(p, usage)
	m.statusEntries = len(owned)
	written, err := d.ReplaceStatus(ctx, before, p)
	if written {
		m.statusWritten = d.Now()
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// IsListFull reports whether status.indexes has no room for another claim.
func (ipPools) IsListFull(p *v1alpha1.IPPool) bool { return metal3.IsIndexFull(p) }

// setClusterMetadata adds the owner reference and the labels of the Cluster to a pool,
// and reports whether any was missing.
func setClusterMetadata(p *v1alpha1.IPPool, clusters clusterpause.Clusters) bool {
	if p.Spec.ClusterName == nil || *p.Spec.ClusterName == "" {
		return false
	}
	name, changed := *p.Spec.ClusterName, false
	for label, value := range map[string]string{clusterpause.LabelClusterName: name, v1alpha1.LabelProvider: v1alpha1.Provider} {
		if p.Labels[label] != value {
			metav1.SetMetaDataLabel(&p.ObjectMeta, label, value)
			changed = true
		}
	}
	cluster, exists := clusters.Cluster(p.Namespace, name)
	if !exists {
		return changed
	}
	kind := clusterv1.GroupVersion.WithKind("Cluster")
	ref := metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: name, UID: cluster.UID}
	at := slices.IndexFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { // every API version
		return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind).GroupKind() == kind.GroupKind() && o.Name == name
	})
	switch {
	case at < 0:
		p.OwnerReferences = append(p.OwnerReferences, ref)
	case p.OwnerReferences[at].UID != cluster.UID:
		p.OwnerReferences[at] = ref
	default:
		return changed
	}
	return true
}

// indexesOf returns claim name -> address. If an IPClaim and an IPAddressClaim have the
// same name, the key of the IPAddressClaim starts with its resource. A claim with several
// addresses has the lowest address.
func indexesOf(owned []ledger.Owned) map[string]v1alpha1.IP {
	indexes := make(map[string]v1alpha1.IP, len(owned))
	list := func(name string, o ledger.Owned) {
		if _, listed := indexes[name]; !listed {
			indexes[name] = v1alpha1.IP(o.Range.First.String())
		}
	}
	taken := map[string]bool{} // names of IPClaims
	for _, o := range owned {
		if o.Owner.Resource == metal3.ResourceIPClaim {
			taken[o.Owner.Name] = true
			list(o.Owner.Name, o)
		}
	}
	for _, o := range owned {
		switch {
		case o.Owner.Resource == metal3.ResourceIPClaim:
		case taken[o.Owner.Name]:
			list("ipaddressclaims/"+o.Owner.Name, o)
		default:
			list(o.Owner.Name, o)
		}
	}
	return indexes
}

func equalIndexes(x, y map[string]v1alpha1.IP) bool {
	if len(x) != len(y) {
		return false
	}
	for name, a := range x {
		if y[name] != a {
			return false
		}
	}
	return true
}

func setCapacity(p *v1alpha1.IPPool, usage ledger.Usage) {
	pool, _ := metal3.ConvertPool(p, nil)
	capacity := allocator.Total(pool.Window)
	capped := capacity == math.MaxInt64
	p.Status.Capacity, p.Status.CapacityCapped, p.Status.AvailableIPCount = &capacity, nil, nil
	if capped {
		p.Status.CapacityCapped = &capped
	} else {
		p.Status.AvailableIPCount = &usage.Available
	}
}
