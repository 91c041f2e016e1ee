package tenancy

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

// source is how objects of a kind are read from a tenant, which may have more of them than anybody expects, or larger ones.
type source struct {
	over  rest.Interface
	path  string
	only  fields.Selector
	empty func() runtime.Object
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// keep is what matters of an object, which may be a new one.
	keep func(runtime.Object) runtime.Object
	most int // objects
	// hints says that it is no matter if there are more.
	hints bool
	// optional says that the kind may not be served, yet.
	optional bool
}

const (
	// keptBytes is how many bytes the objects may have that are kept, on the average, of what matters of them.
	keptBytes = 2 << 10
	// pageSize is how many objects are asked for at once, until an answer is too large.
	pageSize = 200
)

// fits tells whether so many objects with so many bytes are kept.
func (s *source) fits(objects, bytes int) bool { return objects <= s.most && bytes <= s.most*keptBytes }

// each shows every object, one page after the other, until shown says that it has seen enough. It returns the version of the list.
func (s *source) each(ctx context.Context, shown func(runtime.Object) bool) (version string, err error) {
	ctx = klog.NewContext(ctx, logr.Discard()) // an answer that is too large is no error
	o := metav1.ListOptions{FieldSelector: s.only.String(), Limit: pageSize}
	for {
		page, err := s.page(ctx, o)
		if errors.Is(err, errTooLarge) && o.Limit > 1 {
			o.Limit = max(o.Limit/4, 1)
			continue
		}
		if err != nil {
			return "", err
		}
		for _, raw := range page.Items {
			one := s.empty()
			if err := json.Unmarshal(raw, one); err != nil {
				return "", fmt.Errorf("%s: %w", s.path, err)
			}
			if !shown(one) {
				return page.ResourceVersion, nil
			}
		}
		if page.Continue == "" {
			return page.ResourceVersion, nil
		}
		o.Continue = page.Continue
	}
}

// page is a list whose objects have not been read.
type page struct {
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (s *source) page(ctx context.Context, o metav1.ListOptions) (*page, error) {
	answer := s.over.Get().AbsPath(s.path).VersionedParams(&o, scheme.ParameterCodec).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	text, err := answer.Raw()
	if err != nil {
		return nil, err
	}
	p := &page{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path, err)
	}
	if int64(len(p.Items)) > o.Limit {
		return nil, fmt.Errorf("%s: %d objects in an answer, where at most %d were asked for", s.path, len(p.Items), o.Limit)
	}
	return p, nil
}
