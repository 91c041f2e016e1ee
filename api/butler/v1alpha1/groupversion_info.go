package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion of every kind in this package.
	GroupVersion = schema.GroupVersion{Group: "butler.butlerlabs.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme teaches a scheme the kinds of this package.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NetworkPool{}, &NetworkPoolList{}, &IPAllocation{}, &IPAllocationList{},
		&ProviderConfig{}, &ProviderConfigList{}, &TenantCluster{}, &TenantClusterList{}, &AllocationHistory{}, &AllocationHistoryList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
