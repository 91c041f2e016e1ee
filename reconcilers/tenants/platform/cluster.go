package platform

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/informers"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=tenantclusters;providerconfigs,verbs=get;list;watch

// Cluster reads the management cluster. Its informers are separate from the manager's,
// because they trim objects. Safe for concurrent use.
type Cluster struct {
	cache.Cache
	Live          client.Reader // reads from the API server
	Machines      *OptionalKind
	ButlerConfigs *OptionalKind

	mapper meta.RESTMapper
	crds   *broadcast // sends after each change of a CRD
}

// NewCluster returns a Cluster whose cache the caller adds to the manager.
func NewCluster(mgr manager.Manager) (*Cluster, error) {
	scheme := runtime.NewScheme()
	for _, addToScheme := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := addToScheme(scheme); err != nil {
			return nil, err
		}
	}
	informerCache, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: scheme, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), DefaultTransform: trimObject, ReaderFailOnMissingInformer: true,
		NewInformer: informers.New(mgr.GetLogger()),
	})
	if err != nil {
		return nil, err
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Cache: informerCache, Live: live, mapper: mgr.GetRESTMapper(), crds: newBroadcast(),
		Machines:      &OptionalKind{GroupKind: machineKind, plural: "machines"},
		ButlerConfigs: &OptionalKind{GroupKind: butlerConfigKind, plural: "butlerconfigs"},
	}, nil
}

// trimObject removes the fields that no reader of the informers uses.
func trimObject(o any) (any, error) {
	switch o := o.(type) {
	case *metav1.PartialObjectMetadata:
		o.Annotations, o.Labels, o.ManagedFields = nil, nil, nil
	case *corev1.Node:
		addresses := o.Status.Addresses
		*o = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}}
		o.Status.Addresses = addresses
	case *unstructured.Unstructured:
		trimmed := map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": map[string]any{
			"namespace": o.GetNamespace(), "name": o.GetName(), "uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion(),
		}}
		for _, field := range [][]string{machineAddressesField, defaultProviderField} {
			if value, found, err := unstructured.NestedFieldNoCopy(o.Object, field...); found && err == nil {
				trimmed[field[0]] = map[string]any{field[1]: value}
			}
		}
		o.Object = trimmed
	case *corev1.Service:
		mode, requestsVIP := o.Annotations[novaedgev1.AnnotationVIPMode]
		*o = corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion},
			Spec:       corev1.ServiceSpec{Type: o.Spec.Type, ExternalIPs: o.Spec.ExternalIPs}, Status: corev1.ServiceStatus{LoadBalancer: o.Status.LoadBalancer},
		}
		if requestsVIP {
			o.Annotations = map[string]string{novaedgev1.AnnotationVIPMode: mode}
		}
	case client.Object:
		o.SetManagedFields(nil)
	}
	return o, nil
}

// HandleEvents calls handle for every event of a kind, with the object before an update,
// nil on ADDED and DELETED, and the object.
func HandleEvents(ctx context.Context, c cache.Cache, kind client.Object, handle func(before, o client.Object)) error {
	informer, err := c.GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("informer for %T: %w", kind, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { handle(nil, o.(client.Object)) },
		UpdateFunc: func(before, o any) { handle(before.(client.Object), o.(client.Object)) },
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if deleted, ok := o.(client.Object); ok {
				handle(nil, deleted)
			}
		},
	})
	return err
}
