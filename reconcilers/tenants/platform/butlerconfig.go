package platform

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=butlerconfigs,verbs=get;list;watch

// ButlerConfigName is the name of the only ButlerConfig, the configuration of a Butler
// platform.
const ButlerConfigName = "butler"

// DefaultProviderField is the field of spec that names the ProviderConfig of
// TenantClusters without a reference.
const DefaultProviderField = "defaultProviderConfigRef"

var (
	butlerConfigKind     = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "ButlerConfig"}
	defaultProviderField = []string{"spec", DefaultProviderField}
)

// DefaultProviderName returns the name of the ProviderConfig that ButlerConfig names as
// the default; "" if there is no such name.
func (c *Cluster) DefaultProviderName(ctx context.Context) (string, error) {
	version, err := c.readableVersion(ctx, c.ButlerConfigs)
	if err != nil || version == nil {
		return "", err
	}
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(*version)
	if err := c.Get(ctx, client.ObjectKey{Name: ButlerConfigName}, config); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	name, _, _ := unstructured.NestedString(config.Object, append(defaultProviderField[:2:2], "name")...)
	return name, nil
}
