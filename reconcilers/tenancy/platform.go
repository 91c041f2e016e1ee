package tenancy

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters;providerconfigs,verbs=get;list;watch

// platform is what the management cluster has of the platform around the allocator, by informers of its own: they hold no more of an object
// than is looked at.
type platform struct {
	cache.Cache
	mapper meta.RESTMapper
	live   client.Reader // reads from the API server

	crds                  *bell
	machine, butlerConfig *foreign
}

var (
	tenantClusterKind  = v1alpha1.GroupVersion.WithKind("TenantCluster")
	providerConfigKind = v1alpha1.GroupVersion.WithKind("ProviderConfig")
	crdKind            = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

func newPlatform(mgr manager.Manager) (platform, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return platform{}, err
		}
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: scheme, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), DefaultTransform: lean, ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return platform{}, err
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	return platform{
		Cache: c, live: live, mapper: mgr.GetRESTMapper(), crds: newBell(),
		machine: &foreign{GroupKind: machineKind, plural: "machines"}, butlerConfig: &foreign{GroupKind: butlerConfigKind, plural: "butlerconfigs"},
	}, err
}

// lean drops what nobody here looks at.
func lean(o any) (any, error) {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		o.Annotations, o.Labels, o.ManagedFields = nil, nil, nil
	case *corev1.Node:
		addresses := o.Status.Addresses
		*o = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}
		o.Status.Addresses = addresses
	case *unstructured.Unstructured:
		kept := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": map[string]any{
			"namespace": o.GetNamespace(), "name": o.GetName(), "uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion(),
		}}
		for _, field := range [][]string{machineAddresses, defaultProvider} {
			if value, found, err := unstructured.NestedFieldNoCopy(o.Object, field...); found && err == nil {
				kept[field[0]] = map[string]any{field[1]: value}
			}
		}
		o.Object = kept
	case *corev1.Service:
		*o = corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
			Spec:       corev1.ServiceSpec{Type: o.Spec.Type}, Status: corev1.ServiceStatus{LoadBalancer: o.Status.LoadBalancer},
		}
	case client.Object:
		o.SetManagedFields(nil)
	}
	return o, nil
}

// lookAgain bounds the time for which a CRD that is there may not be served yet.
const lookAgain = time.Second

// followCRDs has CRDs known.
func (p platform) followCRDs(ctx context.Context) error {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	informer, err := p.GetInformer(ctx, crd)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { p.crds.ring() }, UpdateFunc: func(_, _ any) { p.crds.ring() }})
	return err
}

// awaitKinds waits until TenantCluster and ProviderConfig are served. It is false when ctx ends first.
func (p platform) awaitKinds(ctx context.Context) bool {
	return p.await(ctx, tenantClusterKind.GroupKind(), "tenantclusters") && p.await(ctx, providerConfigKind.GroupKind(), "providerconfigs")
}

// await waits until a kind is served. The API server is asked only while its CRD is there.
func (p platform) await(ctx context.Context, kind schema.GroupKind, plural string) bool {
	for {
		rung := p.crds.next()
		wait := (<-chan time.Time)(nil)
		if p.defined(ctx, kind.Group, plural) {
			if _, err := p.mapper.RESTMapping(kind); err == nil {
				return true
			}
			wait = time.After(lookAgain)
		}
		select {
		case <-ctx.Done():
			return false
		case <-rung:
		case <-wait:
		}
	}
}

// defined tells whether a CRD is there and stays.
func (p platform) defined(ctx context.Context, group, plural string) bool {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return p.Get(ctx, client.ObjectKey{Name: plural + "." + group}, crd) == nil && crd.DeletionTimestamp == nil
}

// on has a function told of every event of a kind: of the object before, nil where it is new or gone, and of the object.
func on(ctx context.Context, c cache.Cache, o client.Object, tell func(before, o client.Object)) error {
	informer, err := c.GetInformer(ctx, o)
	if err != nil {
		return fmt.Errorf("informer for %T: %w", o, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell(nil, o.(client.Object)) },
		UpdateFunc: func(was, o any) { tell(was.(client.Object), o.(client.Object)) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if gone, ok := o.(client.Object); ok {
				tell(nil, gone)
			}
		},
	})
	return err
}

// watchPlatform feeds the queue of what the platform uses itself.
func (d *desk) watchPlatform(ctx context.Context, shared cache.Cache, q *queues) error {
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Node{}} {
		if err := on(ctx, d.Cache, o, func(before, o client.Object) {
			if before == nil || !shows(before).Equal(shows(o)) {
				q.addPools(ctx, d)
				q.addLeaving(ctx, d)
			}
		}); err != nil {
			return err
		}
	}
	return on(ctx, shared, &v1alpha1.NetworkPool{}, func(before, o client.Object) {
		if before == nil || before.GetGeneration() != o.GetGeneration() {
			q.platform.Add(request(o))
		}
	})
}

// watch feeds the queues of tenants.
func (d *desk) watch(ctx context.Context, shared cache.Cache, q *queues, short ...*names) error {
	if err := on(ctx, d.Cache, &v1alpha1.TenantCluster{}, func(before, o client.Object) {
		q.network.Add(request(o))
		if before == nil || before.GetUID() != o.GetUID() {
			q.addAllocations(ctx, d, o.(*v1alpha1.TenantCluster))
		}
	}); err != nil {
		return err
	}
	if err := on(ctx, d.Cache, &v1alpha1.ProviderConfig{}, func(before, o client.Object) {
		q.providers.Add(request(o))
		nodes := func(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationNodeAddresses] }
		if before == nil || before.GetGeneration() != o.GetGeneration() || nodes(before) != nodes(o) {
			q.addTenants(ctx, d)
		}
	}); err != nil {
		return err
	}
	if err := on(ctx, shared, &v1alpha1.IPAllocation{}, func(_, o client.Object) {
		q.orphans.Add(request(o))
		if ref := o.(*v1alpha1.IPAllocation).Spec.TenantClusterRef; ref.Name != "" {
			q.network.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
		}
	}); err != nil {
		return err
	}
	return on(ctx, shared, &v1alpha1.NetworkPool{}, func(before, o client.Object) {
		q.addProviders(ctx, d)
		was, _ := before.(*v1alpha1.NetworkPool)
		if is := o.(*v1alpha1.NetworkPool); was == nil || was.Generation != is.Generation ||
			was.Status.AvailableIPs < is.Status.AvailableIPs || was.Status.LargestFreeBlock < is.Status.LargestFreeBlock {
			for _, waiting := range short {
				for _, name := range waiting.all() {
					q.network.Add(reconcile.Request{NamespacedName: name})
				}
			}
		}
	})
}

// queues are those of the controllers.
type queues struct{ network, orphans, providers, platform queue }

func request(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// addLeaving has the tenants looked at that are being deleted.
func (q *queues) addLeaving(ctx context.Context, d *desk) {
	all := &v1alpha1.TenantClusterList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			if all.Items[i].DeletionTimestamp != nil {
				q.network.Add(request(&all.Items[i]))
			}
		}
	}
}

// addAll has everything looked at.
func (q *queues) addAll(ctx context.Context, d *desk) error {
	all := &v1alpha1.IPAllocationList{}
	if err := d.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range all.Items {
		q.orphans.Add(request(&all.Items[i]))
	}
	q.addPools(ctx, d)
	q.addProviders(ctx, d)
	q.addTenants(ctx, d)
	return nil
}

// addPools has it looked at what of each pool the platform uses.
func (q *queues) addPools(ctx context.Context, d *desk) {
	all := &v1alpha1.NetworkPoolList{}
	if d.client.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.platform.AddAfter(request(&all.Items[i]), gather)
		}
	}
}

func (q *queues) addTenants(ctx context.Context, d *desk) {
	all := &v1alpha1.TenantClusterList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil { // an error says that there are none, yet
		for i := range all.Items {
			q.network.Add(request(&all.Items[i]))
		}
	}
}

// gather is how long changes of pools come together before the capacity is written.
const gather = 500 * time.Millisecond

func (q *queues) addProviders(ctx context.Context, d *desk) {
	all := &v1alpha1.ProviderConfigList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.providers.AddAfter(request(&all.Items[i]), gather)
		}
	}
}

// addAllocations has those looked at that name a tenant.
func (q *queues) addAllocations(ctx context.Context, d *desk, c *v1alpha1.TenantCluster) {
	all, err := d.allocationsOf(ctx, client.ObjectKeyFromObject(c))
	if err != nil {
		return
	}
	for i := range all {
		q.orphans.Add(request(&all[i]))
	}
}

// indexTenant is an index of the allocations: namespace/name of the TenantCluster ->.
const indexTenant = "tenant"

func tenantOf(o client.Object) []string {
	ref := o.(*v1alpha1.IPAllocation).Spec.TenantClusterRef
	return []string{ref.Namespace + "/" + ref.Name}
}

// allocationsOf is the allocations that name a tenant. They are the informer's own: copy before changing.
func (d *desk) allocationsOf(ctx context.Context, tenant types.NamespacedName) ([]v1alpha1.IPAllocation, error) {
	all := &v1alpha1.IPAllocationList{}
	err := d.client.List(ctx, all, client.InNamespace(d.Namespace), client.MatchingFields{indexTenant: tenant.String()}, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// pools is the NetworkPools that tenants draw from, by name. They are the informer's own.
func (d *desk) pools(ctx context.Context) (map[string]*v1alpha1.NetworkPool, error) {
	all := &v1alpha1.NetworkPoolList{}
	if err := d.client.List(ctx, all, client.InNamespace(d.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.NetworkPool{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	return byName, nil
}

// applied is an object as far as we write it, by server-side apply. It names the UID, so that it never makes one anew that is gone.
func applied(kind schema.GroupVersionKind, o client.Object, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetUID(o.GetUID())
	return u
}

// applyStatus writes some fields of a status as one of its owners. An object that is gone needs none.
func (d *desk) applyStatus(ctx context.Context, kind schema.GroupVersionKind, o client.Object, owner string, status map[string]any) error {
	u := applied(kind, o, map[string]any{"status": status})
	err := d.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}

// condition is one as a status holds it, with the time of its last change.
func condition(before []metav1.Condition, c metav1.Condition, now time.Time) (fields map[string]any, changed bool) {
	was := meta.FindStatusCondition(before, c.Type)
	changed = was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
	since := metav1.NewTime(now)
	if was != nil && was.Status == c.Status {
		since = was.LastTransitionTime
	}
	return map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "lastTransitionTime": since.UTC().Format(time.RFC3339),
	}, changed
}

// names is a set of objects, for any number of goroutines.
type names struct {
	mu  sync.Mutex
	set map[types.NamespacedName]bool
}

func newNames() *names { return &names{set: map[types.NamespacedName]bool{}} }

func (n *names) put(name types.NamespacedName, in bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if in {
		n.set[name] = true
	} else {
		delete(n.set, name)
	}
}

func (n *names) all() (list []types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.set {
		list = append(list, name)
	}
	return list
}

// reasons is what was last said of objects, for any number of goroutines. The zero value is empty.
type reasons struct {
	mu  sync.Mutex
	set map[types.NamespacedName]string
}

// news tells whether a reason is another one than before, and notes it; "" is none.
func (r *reasons) news(name types.NamespacedName, why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set[name] == why {
		return false
	}
	if r.set == nil {
		r.set = map[types.NamespacedName]string{}
	}
	if r.set[name] = why; why == "" {
		delete(r.set, name)
	}
	return true
}

// bell tells any number of goroutines that something has changed.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

func newBell() *bell { return &bell{rung: make(chan struct{})} }

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.rung)
	b.rung = make(chan struct{})
}

// next is closed when it rings the next time.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rung
}
