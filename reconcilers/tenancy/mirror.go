package tenancy

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// mirror is a copy of some objects of a tenant, as its API server last told of them.
type mirror struct {
	toolscache.Store
	synced, absent atomic.Bool   // absent: the kind is not served
	version        atomic.Uint64 // up to which it shows changes; what the deletion of an object came at, included
	keep           func(any) any
	changed        func()
}

// newMirror keeps of each object what keep leaves of it. changed is told of every change; it must not block.
func newMirror(keep func(any) any, changed func()) *mirror {
	return &mirror{Store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), keep: keep, changed: changed}
}

// Add implements cache.Store.
func (m *mirror) Add(o any) error {
	defer m.shows(o)
	return m.Store.Add(m.keep(o))
}

// Update implements cache.Store.
func (m *mirror) Update(o any) error {
	defer m.shows(o)
	return m.Store.Update(m.keep(o))
}

// Delete implements cache.Store.
func (m *mirror) Delete(o any) error {
	defer m.shows(o)
	return m.Store.Delete(o)
}

// shows notes how far it is, and tells of the change.
func (m *mirror) shows(o any) {
	if o, err := meta.Accessor(o); err == nil {
		m.version.Store(max(m.version.Load(), parseVersion(o.GetResourceVersion())))
	}
	m.changed()
}

// parseVersion reads a resourceVersion: those of one kind compare as numbers.
func parseVersion(text string) uint64 {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// Replace implements cache.Store: it is the end of a whole list.
func (m *mirror) Replace(all []any, version string) error {
	defer m.changed()
	for i := range all {
		all[i] = m.keep(all[i])
	}
	err := m.Store.Replace(all, version)
	m.version.Store(parseVersion(version))
	m.synced.Store(err == nil)
	return err
}

// source is how objects of a kind are read from a tenant.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	only  fields.Selector
	// optional says that the kind may not be served, yet.
	optional bool
}

// How often a kind is asked for that is not served: it may be that the API server has only just begun, so slowly less often.
const (
	firstLook  = 300 * time.Millisecond
	lookFactor = 1.2
	lastLook   = 30 * time.Second
)

// follow keeps a mirror up to date until ctx ends. lost is told of an error that says that the tenant cannot be reached, or not so.
func (m *mirror) follow(ctx context.Context, s source, example any, lost func(error)) {
	noted := func(err error) error {
		missing := s.optional && apierrors.IsNotFound(err)
		m.absent.Store(missing)
		switch {
		case missing:
			m.synced.Store(false)
			m.changed()
		case err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			lost(err)
		}
		return err
	}
	toolscache.NewReflectorWithOptions(&reading{toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = s.only.String()
			list, err := s.list(ctx, o)
			return list, noted(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = s.only.String()
			w, err := s.watch(ctx, o)
			return w, noted(err)
		},
	}}, example, m, toolscache.ReflectorOptions{Backoff: &wait.Backoff{
		Duration: firstLook, Factor: lookFactor, Cap: lastLook, Steps: math.MaxInt32, Jitter: 0.1,
	}}).RunWithContext(klog.NewContext(ctx, logr.Discard())) // the session says what is worth saying
}

// reading reads lists in one answer, whose size is bounded, rather than as a stream without end.
type reading struct{ toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by the reflector.
func (*reading) IsWatchListSemanticsUnSupported() bool { return true }
