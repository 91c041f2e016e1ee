package platform

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OptionalKind is a kind of another project that need not be installed. The objects are
// read in the preferred version of the API server.
type OptionalKind struct {
	schema.GroupKind
	plural  string
	version atomic.Pointer[schema.GroupVersionKind] // nil until the informer is synced
}

// WatchOptional waits for the CRD of a kind and starts its informer. onChanged is called
// once the objects are known, and after each change of a spec or status.
func (c *Cluster) WatchOptional(ctx context.Context, kind *OptionalKind, onChanged func()) error {
	version, err := c.AwaitVersion(ctx, kind)
	if err != nil || version == nil {
		return err // or the process ends
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(*version)
	err = HandleEvents(ctx, c.Cache, o, func(before, o client.Object) {
		if before == nil || !equalContent(before, o) {
			onChanged()
		}
	})
	kind.SetReadable(*version)
	onChanged() // earlier decisions did not see the objects
	return err
}

// AwaitVersion waits for the CRD of a kind and returns the version in which its objects
// are read; nil if ctx ends first.
func (c *Cluster) AwaitVersion(ctx context.Context, kind *OptionalKind) (*schema.GroupVersionKind, error) {
	if !c.awaitKind(ctx, kind.GroupKind, kind.plural) {
		return nil, nil
	}
	mapping, err := c.mapper.RESTMapping(kind.GroupKind)
	if err != nil {
		return nil, err
	}
	return &mapping.GroupVersionKind, nil
}

// SetReadable records that the informer of a kind is synced.
func (k *OptionalKind) SetReadable(version schema.GroupVersionKind) { k.version.Store(&version) }

// equalContent reports whether two versions of an object have equal spec and status.
func equalContent(a, b client.Object) bool {
	before, after := a.(*unstructured.Unstructured).Object, b.(*unstructured.Unstructured).Object
	return equality.Semantic.DeepEqual(before["spec"], after["spec"]) && equality.Semantic.DeepEqual(before["status"], after["status"])
}

// readableVersion returns the version in which the objects of a kind can be read:
//
//	CRD missing                       nil: the objects were deleted with the CRD, even if the informer still has some
//	CRD exists, informer not synced   error
//	otherwise                         the version, also while the CRD is being deleted
func (c *Cluster) readableVersion(ctx context.Context, kind *OptionalKind) (*schema.GroupVersionKind, error) {
	version := kind.version.Load()
	switch _, err := c.readCRD(ctx, kind.Group, kind.plural); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case version == nil:
		return nil, fmt.Errorf("the informer of kind %s is not synced yet", kind.GroupKind)
	}
	return version, nil
}
