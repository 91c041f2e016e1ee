package tenancy

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

// foreign is a kind of others that need not be installed: its objects are read as they come, in whichever version is served.
type foreign struct {
	schema.GroupKind
	plural  string
	version atomic.Pointer[schema.GroupVersionKind] // nil until its objects are known
}

// follow has the objects of a kind known from when it is there. changed is told of each in which something has changed that is looked at.
func (p platform) follow(ctx context.Context, kind *foreign, changed func()) error {
	if !p.await(ctx, kind.GroupKind, kind.plural) {
		return nil // the process ends
	}
	mapping, err := p.mapper.RESTMapping(kind.GroupKind)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	err = on(ctx, p.Cache, o, func(before, o client.Object) {
		if before == nil || !sameContent(before, o) {
			changed()
		}
	})
	kind.version.Store(&mapping.GroupVersionKind)
	changed() // what was decided without
	return err
}

func sameContent(a, b client.Object) bool {
	was, is := a.(*unstructured.Unstructured).Object, b.(*unstructured.Unstructured).Object
	return equality.Semantic.DeepEqual(was["spec"], is["spec"]) && equality.Semantic.DeepEqual(was["status"], is["status"])
}

// versionOf is in which version the objects of a kind are known; nil where it is not installed. That they are not known yet is an error. While their CRD
// is being deleted they are there still.
func (p platform) versionOf(ctx context.Context, kind *foreign) (*schema.GroupVersionKind, error) {
	version := kind.version.Load()
	switch _, err := p.crd(ctx, kind.Group, kind.plural); {
	case apierrors.IsNotFound(err): // its objects went with it, whatever the informer has
		return nil, nil
	case err != nil:
		return nil, err
	case version == nil:
		return nil, fmt.Errorf("the objects of kind %s are not known yet", kind.GroupKind)
	}
	return version, nil
}
