package reconcilers

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
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=get;list;watch;patch
// Nobody deletes a pool here: where the API server has OwnerReferencesPermissionEnforcement, only who may do so may say which Cluster it belongs to.
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools,verbs=delete
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ippools/status,verbs=update

// ipPools keeps an IPPool's owner, its record of who has what, and of what rests.
type ipPools struct{}

func (ipPools) empty() *v1alpha1.IPPool { return &v1alpha1.IPPool{} }

func (ipPools) emptyList() client.ObjectList { return &v1alpha1.IPPoolList{} }

func (ipPools) pool(p *v1alpha1.IPPool) (ledger.Pool, field.ErrorList) {
	return metal3.PoolOf(p, metal3.NewSource())
}

func (ipPools) finalizer() string { return v1alpha1.FinalizerIPPool }

func (ipPools) rests(d *desk, p *v1alpha1.IPPool) error {
	if metal3.Away(p) {
		return errAway
	}
	return metal3.WaitPool(p, d.clusters)
}

// errAway is why a pool is left alone that clusterctl takes away.
var errAway = errors.New("it goes to another cluster")

func (ipPools) urgent(context.Context, *desk, reconcile.Request) (bool, error) { return false, nil }

func (ipPools) gone(context.Context, *desk, reconcile.Request) error { return nil }

func (ipPools) status(ctx context.Context, d *desk, before, p *v1alpha1.IPPool, usage ledger.Usage, memory *poolMemory) (reconcile.Result, error) {
	key := metal3.IPPoolKey(p.Namespace, p.Name)
	if belong(p, d.clusters) {
		return reconcile.Result{}, d.overtaken.Ignore(ctx, before, d.save(ctx, before, p))
	}
	done, again := d.recordResting(ctx, before, key, d.ledger.Resting(key), memory)
	if done {
		return reconcile.Result{}, nil
	}
	held := d.ledger.HeldThrough(key)
	indexes := indexesOf(held)
	switch {
	case p.Status.LastUpdated == nil && len(indexes) == 0:
		p.Status.LastUpdated = p.CreationTimestamp.DeepCopy()
	case p.Status.LastUpdated == nil || !equalIndexes(p.Status.Indexes, indexes):
		p.Status.LastUpdated = ptr.To(metav1.NewTime(d.wall()))
	}
	p.Status.Indexes = indexes
	setCapacity(p, usage)
	memory.records = len(held)
	written, err := d.replaceStatus(ctx, before, p)
	if written {
		memory.written = d.now()
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// belong has a pool say which Cluster it belongs to, and tells whether it did not.
func belong(p *v1alpha1.IPPool, clusters metal3.Clusters) bool {
	if p.Spec.ClusterName == nil || *p.Spec.ClusterName == "" {
		return false
	}
	name, changed := *p.Spec.ClusterName, false
	for label, value := range map[string]string{metal3.LabelClusterName: name, v1alpha1.LabelProvider: v1alpha1.Provider} {
		if p.Labels[label] != value {
			metav1.SetMetaDataLabel(&p.ObjectMeta, label, value)
			changed = true
		}
	}
	cluster, there := clusters.Cluster(p.Namespace, name)
	if !there {
		return changed
	}
	kind := clusterv1.GroupVersion.WithKind("Cluster")
	ref := metav1.OwnerReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: name, UID: cluster.UID}
	at := slices.IndexFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { // of any version
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

// indexesOf is which claim has which address, by name. Where claims of both kinds have one name, that of Cluster API's is told by its resource. A
// claim that more is held for has what comes first.
func indexesOf(held []ledger.Held) map[string]v1alpha1.IP {
	indexes := make(map[string]v1alpha1.IP, len(held))
	list := func(name string, h ledger.Held) {
		if _, listed := indexes[name]; !listed {
			indexes[name] = v1alpha1.IP(h.Range.First.String())
		}
	}
	taken := map[string]bool{} // names of IPClaims
	for _, h := range held {
		if h.Holder.Kind == metal3.KindIPClaim {
			taken[h.Holder.Name] = true
			list(h.Holder.Name, h)
		}
	}
	for _, h := range held {
		switch {
		case h.Holder.Kind == metal3.KindIPClaim:
		case taken[h.Holder.Name]:
			list("ipaddressclaims/"+h.Holder.Name, h)
		default:
			list(h.Holder.Name, h)
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
	pool, _ := metal3.PoolOf(p, nil)
	capacity := allocator.Total(pool.Window)
	capped := capacity == math.MaxInt64
	p.Status.Capacity, p.Status.CapacityCapped, p.Status.AvailableIPCount = &capacity, nil, nil
	if capped {
		p.Status.CapacityCapped = &capped
	} else {
		p.Status.AvailableIPCount = &usage.Available
	}
}
