// Package report defines the versioned JSON types for the contents of an Inventory. A
// program reads the output of the plugin and the pages of the console with the same
// types.
package report

import "strings"

// APIVersion is the version of the types of this package.
const APIVersion = "kubectl-ipam.butlerlabs.dev/v1"

// Kinds of the documents.
const (
	KindPoolList    = "PoolList"
	KindAddressMap  = "AddressMap"
	KindOwnerList   = "OwnerList"
	KindClaimList   = "ClaimList"
	KindPlan        = "Plan"
	KindFit         = "Fit"
	KindProviderFit = "ProviderFit"
	KindCheck       = "Check"
	KindTenant      = "Tenant"
)

// List is a document with items.
type List[T any] struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []T    `json:"items"`
}

// NewList returns a list of a kind.
func NewList[T any](kind string, items []T) List[T] {
	return List[T]{APIVersion, kind, append([]T{}, items...)}
}

// Column is a column of a table of items.
type Column[T any] struct {
	Name  string
	Wide  bool // omitted from tables without -o wide
	Value func(T) string
}

// Header returns the name of the column in CSV.
func (c Column[T]) Header() string { return strings.ToLower(c.Name) }
