package addressobjects

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// Kind describes a resource of address objects.
type Kind struct {
	Resource string
	Empty    func() client.Object
	NewList  func() client.ObjectList
	Convert  func(client.Object) ledger.Claim
}

// AddIndex adds the index of the address objects by the name of the claim.
func (k *Kind) AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, k.Empty(), annotated.IndexOwnerClaim, func(o client.Object) []string { return []string{k.Convert(o).OwnerClaim.Name} })
}

// OwnerReference returns a reference to the owner of an address object.
func OwnerReference(o client.Object, apiVersion, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}
