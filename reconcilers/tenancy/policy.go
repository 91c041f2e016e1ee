package tenancy

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=butlerconfigs,verbs=get;list;watch

// butlerConfigKind is the configuration of a Butler platform, of which there is one.
var butlerConfigKind = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "ButlerConfig"}

const butlerConfigName = "butler"

// defaultProvider is the field of it that is read.
var defaultProvider = []string{"spec", "defaultProviderConfigRef"}

// providerOf is the ProviderConfig of a tenant: the one it names, else the platform's, else the one called default, else the first that it may use.
// The error of one that does not exist says which.
func (d *desk) providerOf(ctx context.Context, c *v1alpha1.TenantCluster) (*v1alpha1.ProviderConfig, error) {
	provider := &v1alpha1.ProviderConfig{}
	key := client.ObjectKey{Namespace: d.Namespace}
	if ref := c.Spec.ProviderConfigRef; ref != nil {
		if key.Name = ref.Name; ref.Namespace != "" {
			key.Namespace = ref.Namespace
		}
		return provider, d.getProvider(ctx, key, provider)
	}
	name, err := d.platformProvider(ctx)
	if err != nil {
		return nil, err
	}
	key.Name = cmp.Or(name, "default")
	err = d.getProvider(ctx, key, provider)
	if name != "" && err != nil {
		return nil, fmt.Errorf("spec.%s of ButlerConfig %s: %w", defaultProvider[1], butlerConfigName, err)
	}
	if !apierrors.IsNotFound(err) {
		return provider, err
	}
	all := &v1alpha1.ProviderConfigList{}
	if err := d.List(ctx, all, client.InNamespace(d.Namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if p := &all.Items[i]; tenants.MayUse(p, c) == nil && (provider.Name == "" || p.Name < provider.Name) {
			provider = p
		}
	}
	if provider.Name == "" {
		return nil, err
	}
	return provider, nil
}

// getProvider reads a ProviderConfig. That there is none is said by the API server itself: it may be that the informer has not seen it yet.
func (d *desk) getProvider(ctx context.Context, key client.ObjectKey, provider *v1alpha1.ProviderConfig) error {
	err := d.Get(ctx, key, provider)
	if apierrors.IsNotFound(err) {
		err = d.live.Get(ctx, key, provider)
	}
	return err
}

// platformProvider is the name of the ProviderConfig for tenants that name none, as the platform says; "" where it does not.
func (d *desk) platformProvider(ctx context.Context) (string, error) {
	version, err := d.versionOf(ctx, d.butlerConfig)
	if err != nil || version == nil {
		return "", err
	}
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(*version)
	if err := d.Get(ctx, client.ObjectKey{Name: butlerConfigName}, config); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	name, _, _ := unstructured.NestedString(config.Object, append(defaultProvider[:2:2], "name")...)
	return name, nil
}

// policyOf is what holds for a tenant.
func (d *desk) policyOf(ctx context.Context, c *v1alpha1.TenantCluster) (tenants.Policy, error) {
	provider, err := d.providerOf(ctx, c)
	if err == nil {
		err = tenants.MayUse(provider, c)
	}
	if err != nil {
		return tenants.Policy{}, err
	}
	return tenants.PolicyOf(provider), nil
}
