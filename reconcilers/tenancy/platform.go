package tenancy

import (
	"context"
	"fmt"
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

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/informers"
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
		NewInformer: informers.New(mgr.GetLogger()),
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
	crd, err := p.crd(ctx, group, plural)
	return err == nil && crd.DeletionTimestamp == nil
}

func (p platform) crd(ctx context.Context, group, plural string) (*metav1.PartialObjectMetadata, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return crd, p.Get(ctx, client.ObjectKey{Name: plural + "." + group}, crd)
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
