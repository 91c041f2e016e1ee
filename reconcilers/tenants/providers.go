package tenants

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
)

// findPolicy returns the policy of the ProviderConfig of a tenant, if the tenant's team
// may use it.
func (d *deps) findPolicy(ctx context.Context, c *v1alpha1.TenantCluster) (plan.Policy, error) {
	provider, err := d.findProvider(ctx, c)
	if err == nil {
		err = plan.CheckTeam(provider, c)
	}
	if err != nil {
		return plan.Policy{}, err
	}
	return plan.PolicyOf(provider), nil
}

// findProvider returns the ProviderConfig of a tenant, the first of:
//
//	spec.providerConfigRef of the TenantCluster
//	spec.defaultProviderConfigRef of ButlerConfig butler
//	the ProviderConfig default
//	the first by name that the tenant's team may use
//
// A missing ProviderConfig in the first or second place is an error with the name;
// further places are not considered.
func (d *deps) findProvider(ctx context.Context, c *v1alpha1.TenantCluster) (*v1alpha1.ProviderConfig, error) {
	provider := &v1alpha1.ProviderConfig{}
	key := client.ObjectKey{Namespace: d.Namespace}
	if ref := c.Spec.ProviderConfigRef; ref != nil {
		if key.Name = ref.Name; ref.Namespace != "" {
			key.Namespace = ref.Namespace
		}
		return provider, d.readProvider(ctx, key, provider)
	}
	name, err := d.platform.DefaultProviderName(ctx)
	if err != nil {
		return nil, err
	}
	key.Name = cmp.Or(name, "default")
	err = d.readProvider(ctx, key, provider)
	if name != "" && err != nil {
		return nil, fmt.Errorf("spec.%s of ButlerConfig %s: %w", platform.DefaultProviderField, platform.ButlerConfigName, err)
	}
	if !apierrors.IsNotFound(err) {
		return provider, err
	}
	all := &v1alpha1.ProviderConfigList{}
	if err := d.platform.List(ctx, all, client.InNamespace(d.Namespace)); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if p := &all.Items[i]; plan.CheckTeam(p, c) == nil && (provider.Name == "" || p.Name < provider.Name) {
			provider = p
		}
	}
	if provider.Name == "" {
		return nil, err
	}
	return provider, nil
}

// readProvider reads a ProviderConfig from the informer, and from the API server if the
// informer has not observed it.
func (d *deps) readProvider(ctx context.Context, key client.ObjectKey, provider *v1alpha1.ProviderConfig) error {
	err := d.platform.Get(ctx, key, provider)
	if apierrors.IsNotFound(err) {
		err = d.platform.Live.Get(ctx, key, provider)
	}
	return err
}
