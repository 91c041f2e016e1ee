package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// reader lists and watches the objects of one kind in a tenant, with bounds on their
// number and size.
type reader struct {
	client    rest.Interface
	path      string
	selector  fields.Selector
	newObject func() runtime.Object
	openWatch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// trim returns what is kept of an object, which may be a new object.
	trim       func(runtime.Object) runtime.Object
	maxObjects int
	// lossy: objects beyond maxObjects are ignored for good, and the mirror is not
	// recounted.
	lossy bool
	// optional: the tenant may not serve the kind, or not yet.
	optional bool
}

const (
	// BytesPerObject is the average size that trimmed objects may have.
	BytesPerObject = 2 << 10
	// pageSize is the number of objects in the first page of a list. It shrinks while
	// answers exceed the bounds.
	pageSize = 200
)

// fitsBounds reports whether a mirror may keep a number of objects with a number of
// bytes.
func (r *reader) fitsBounds(objects, bytes int) bool {
	return objects <= r.maxObjects && bytes <= r.maxObjects*BytesPerObject
}

// forEach lists the objects page by page and calls visit with each, until visit returns
// false. It returns the resourceVersion of the list.
func (r *reader) forEach(ctx context.Context, visit func(runtime.Object) bool) (version string, err error) {
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go logs an oversized answer as an error; here a smaller page follows
	o := metav1.ListOptions{FieldSelector: r.selector.String(), Limit: pageSize}
	for {
		page, err := r.readPage(ctx, o)
		if errors.Is(err, errOversized) && o.Limit > 1 {
			o.Limit = max(o.Limit/4, 1)
			continue
		}
		if err != nil {
			return "", err
		}
		for _, raw := range page.Items {
			object := r.newObject()
			if err := json.Unmarshal(raw, object); err != nil {
				return "", fmt.Errorf("%s: %w", r.path, err)
			}
			if !visit(object) {
				return page.ResourceVersion, nil
			}
		}
		if page.Continue == "" {
			return page.ResourceVersion, nil
		}
		o.Continue = page.Continue
	}
}

// rawPage is one page of a list, with objects that are not decoded yet.
type rawPage struct {
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (r *reader) readPage(ctx context.Context, o metav1.ListOptions) (*rawPage, error) {
	answer := r.client.Get().AbsPath(r.path).VersionedParams(&o, scheme.ParameterCodec).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	text, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	p := &rawPage{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	if int64(len(p.Items)) > o.Limit {
		return nil, fmt.Errorf("%s: the answer has %d objects, the limit was %d", r.path, len(p.Items), o.Limit)
	}
	return p, nil
}
