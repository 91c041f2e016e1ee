package feed

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// ScanClaims implements ledger.Source.
func (f *Feed) ScanClaims(ctx context.Context, name, namespace string, visit func(ledger.Claim)) error {
	r, err := f.findResource(name)
	if err != nil {
		return err
	}
	all, _, err := f.listLive(ctx, r, client.InNamespace(namespace))
	if err != nil {
		return ignoreAbsent(err)
	}
	for _, o := range all {
		visit(r.claim(o))
	}
	return nil
}

// ReadClaim implements ledger.Source.
func (f *Feed) ReadClaim(ctx context.Context, key ledger.Key) (c ledger.Claim, stored bool, err error) {
	r, err := f.findResource(key.Resource)
	if err != nil {
		return ledger.Claim{}, false, err
	}
	o := r.empty()
	err = f.live.Get(ctx, Request(key).NamespacedName, o)
	var answer apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Name == key.Name {
		return ledger.Claim{}, false, nil // a 404 without the name of the object means that the API server does not serve the resource
	}
	if err != nil {
		return ledger.Claim{}, false, err
	}
	return r.claim(o), true, nil
}

// FenceWrites implements ledger.Source.
func (f *Feed) FenceWrites(ctx context.Context, key ledger.Key, uid string) (uint64, error) {
	r, err := f.findResource(key.Resource)
	if err != nil {
		return 0, err
	}
	return r.fence(ctx, key, uid)
}

// listLive lists from the API server, consistently: all pages are of the latest state at
// the time of the first page, and listLive returns the resourceVersion of that state.
func (f *Feed) listLive(ctx context.Context, r *resource, options ...client.ListOption) (all []client.Object, version uint64, err error) {
	page := &client.ListOptions{Limit: listPage}
	for {
		list := r.newList()
		if err := f.live.List(ctx, list, append(options, page)...); err != nil {
			if apierrors.IsForbidden(err) {
				f.recordDenied(r, err)
			}
			return nil, 0, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, o.(client.Object))
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return all, object.ParseVersion(list.GetResourceVersion()), nil
		}
	}
}

// listPage is the number of objects in one page of a live read.
const listPage = 500

// HasObjects implements ledger.Source.
func (f *Feed) HasObjects(ctx context.Context, name string) (bool, error) {
	gvk, err := f.mapper.KindFor(schema.ParseGroupResource(name).WithVersion(""))
	if isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk)
	if err := f.live.List(ctx, list, client.Limit(1)); err != nil {
		return false, ignoreAbsent(err)
	}
	return len(list.Items) > 0, nil
}

// AnyStored implements ledger.Source.
func (f *Feed) AnyStored(ctx context.Context) (bool, error) {
	unknown := false
	for name, r := range f.resources {
		list := r.newList()
		err := f.live.List(ctx, list, client.Limit(1))
		switch {
		case apierrors.IsForbidden(err):
			unknown = true
		case ignoreAbsent(err) != nil:
			return false, fmt.Errorf("%s: %w", name, err)
		case meta.LenList(list) > 0:
			return true, nil
		}
	}
	return unknown, nil
}
