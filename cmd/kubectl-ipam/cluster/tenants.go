package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Resources of the platform. An Inventory contains no objects of these resources.
var (
	resourceTenantCluster  = newResource[butlerv1.TenantCluster]("tenantclusters.butler.butlerlabs.dev", "v1alpha1")
	resourceProviderConfig = newResource[butlerv1.ProviderConfig]("providerconfigs.butler.butlerlabs.dev", "v1alpha1")
)

// TenantFeed watches the TenantClusters and ProviderConfigs, and keeps their current
// versions.
type TenantFeed struct {
	watched map[string]*watched // resource -> objects, for each resource that the user may list
	notes   map[string]string   // installed resource -> description of unread objects; "" if the resource is read completely
}

// WatchTenants watches TenantClusters and ProviderConfigs, if installed, until ctx ends.
// The two kinds belong to the platform: of the roles of Butler IPAM, only
// butler-ipam-tenants-viewer contains them. If the user may not list a kind, the feed has
// a note in place of the objects.
func WatchTenants(ctx context.Context, o Options) (*TenantFeed, error) {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	f := &TenantFeed{watched: map[string]*watched{}, notes: map[string]string{}}
	for _, of := range []resource{resourceTenantCluster, resourceProviderConfig} {
		if served, err := o.isServed(ctx, of); err != nil {
			return nil, err
		} else if !served {
			continue
		}
		namespace, err := findScope(ctx, client, of, o.Namespace)
		switch f.notes[of.name] = ""; {
		case apierrors.IsForbidden(err):
			f.notes[of.name] = o.notRead(of)
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", of.name, err)
		case namespace != metav1.NamespaceAll:
			f.notes[of.name] = fmt.Sprintf(onlyListed, of.Resource, namespace)
		}
		if f.watched[of.name], err = newWatched(client, of, namespace, ""); err != nil {
			return nil, err
		}
	}
	start(ctx, f.watched)
	return f, nil
}

// ReadProvider reads a ProviderConfig. An error names the remedy.
func ReadProvider(ctx context.Context, o Options, namespace, name string) (*butlerv1.ProviderConfig, error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	raw, err := client.Get().AbsPath(append(path(resourceProviderConfig.GroupVersionResource, namespace), name)...).Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("ProviderConfig %s/%s: you may not get it. ProviderConfigs belong to the platform, and the role butler-ipam-viewer does not contain them: ask for the right to get %s in namespace %s, which the role butler-ipam-tenants-viewer contains", namespace, name, resourceProviderConfig.name, namespace)
	case apierrors.IsNotFound(err):
		if served, err := o.isServed(ctx, resourceProviderConfig); err == nil && !served {
			return nil, fmt.Errorf("ProviderConfig %s/%s: this cluster has no ProviderConfigs, which are part of the Butler platform: use kubectl ipam fit POOL", namespace, name)
		}
		return nil, fmt.Errorf("ProviderConfig %s/%s does not exist: list them with kubectl get providerconfigs.butler.butlerlabs.dev -A", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("get ProviderConfig %s/%s: %w", namespace, name, err)
	}
	c := &butlerv1.ProviderConfig{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("ProviderConfig %s/%s: %w", namespace, name, err)
	}
	return c, nil
}

// ListProviders lists the names of the ProviderConfigs, as NAMESPACE/NAME: those of all
// namespaces, or those of the namespace of the options.
func ListProviders(ctx context.Context, o Options) (names []string, err error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	each := func(c metav1.PartialObjectMetadata) { names = append(names, c.Namespace+"/"+c.Name) }
	err = listPages(ctx, client, "", each, path(resourceProviderConfig.GroupVersionResource, "")...)
	if apierrors.IsForbidden(err) {
		err = listPages(ctx, client, "", each, path(resourceProviderConfig.GroupVersionResource, o.Namespace)...)
	}
	return names, err
}

// Tenant returns the stored objects of a tenant beside its claims, without objects that
// the reader may not list.
func (f *TenantFeed) Tenant(scope Scope, namespace, name string) (t inventory.Tenant) {
	if c := f.find(scope, namespace, name); c != nil {
		t = inventory.NewTenant(c, f.providers(scope))
	} else if note := f.note(scope, resourceTenantCluster); note != "" {
		t.NotRead = append(t.NotRead, note)
	}
	if note := f.note(scope, resourceProviderConfig); note != "" && t.Provider == nil {
		t.NotRead = append(t.NotRead, note)
	}
	for _, w := range f.watched {
		if note := w.note(scope); note != "" {
			t.NotRead = append(t.NotRead, note)
		}
	}
	slices.Sort(t.NotRead)
	return t
}

// note describes the objects of a resource that are not shown to a reader; "" if every
// object is shown, and for a resource that is not installed.
func (f *TenantFeed) note(scope Scope, of resource) string {
	note, installed := f.notes[of.name]
	if namespace, some := scope[of.name]; installed && scope != nil {
		switch {
		case !some:
			return Options{}.notRead(of)
		case note == "" && namespace != AllNamespaces:
			return fmt.Sprintf(onlyListed, of.Resource, namespace)
		}
	}
	return note
}

// find returns a TenantCluster; nil if the TenantCluster is not stored, is not read, or
// is not in the Scope of the reader.
func (f *TenantFeed) find(scope Scope, namespace, name string) *butlerv1.TenantCluster {
	w := f.watched[resourceTenantCluster.name]
	if w == nil || !scope.contains(inventory.Key{Resource: resourceTenantCluster.name, Namespace: namespace, Name: name}) {
		return nil
	}
	o, _, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return nil
	}
	c, _ := o.(*butlerv1.TenantCluster)
	return c
}

// providers lists the ProviderConfigs that a reader may list.
func (f *TenantFeed) providers(scope Scope) (list []*butlerv1.ProviderConfig) {
	w := f.watched[resourceProviderConfig.name]
	if w == nil {
		return nil
	}
	for _, o := range w.informer.GetStore().List() {
		if c, ok := o.(*butlerv1.ProviderConfig); ok && scope.contains(inventory.Key{Resource: resourceProviderConfig.name, Namespace: c.Namespace, Name: c.Name}) {
			list = append(list, c)
		}
	}
	return list
}
