package tenancy

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// mirror is a copy of some objects of a tenant, as its API server last told of them: of so many, and of each what is looked at.
type mirror struct {
	toolscache.Store
	source
	synced, absent atomic.Bool   // absent: the kind is not served
	partial        atomic.Bool   // there are more than it keeps
	version        atomic.Uint64 // up to which it shows changes; what the deletion of an object came at, included
	changed        func()

	// What follows belongs to the goroutine that follows.
	objects, bytes int // kept
	watching       watch.Interface
	recount        *time.Timer
	recounts       int // that found no end, one after the other
}

// newMirror is an empty one. changed is told of every change; it must not block.
func newMirror(s source, changed func()) *mirror {
	return &mirror{Store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), source: s, changed: changed}
}

// Add implements cache.Store.
func (m *mirror) Add(o any) error {
	defer m.shows(o)
	kept := m.keep(o.(runtime.Object))
	before, known, err := m.Get(kept)
	if err != nil {
		return err
	}
	objects, bytes := m.objects, m.bytes+weigh(kept)
	if known {
		bytes -= weigh(before)
	} else {
		objects++
	}
	if !m.fits(objects, bytes) {
		m.partial.Store(true)
		m.countAgain()
		return m.drop(kept)
	}
	m.objects, m.bytes = objects, bytes
	return m.Store.Add(kept)
}

// Update implements cache.Store.
func (m *mirror) Update(o any) error { return m.Add(o) }

// Delete implements cache.Store.
func (m *mirror) Delete(o any) error {
	defer m.shows(o)
	return m.drop(o)
}

func (m *mirror) drop(o any) error {
	if before, known, err := m.Get(o); known && err == nil {
		m.objects, m.bytes = m.objects-1, m.bytes-weigh(before)
	}
	return m.Store.Delete(o)
}

// weigh is how many bytes an object takes when it is stored; of those that do not say, none.
func weigh(o any) int {
	if sized, ok := o.(interface{ Size() int }); ok {
		return sized.Size()
	}
	return 0
}

// shows notes how far it is, and tells of the change.
func (m *mirror) shows(o any) {
	if o, err := meta.Accessor(o); err == nil {
		m.version.Store(max(m.version.Load(), fields.ResourceVersion(o)))
	}
	m.changed()
}

// Replace implements cache.Store: it is the end of a list, whose objects are what keep leaves.
func (m *mirror) Replace(all []any, version string) error {
	defer m.changed()
	m.objects, m.bytes = len(all), 0
	for _, o := range all {
		m.bytes += weigh(o)
	}
	if m.recounts++; !m.partial.Load() {
		m.recounts = 0
	}
	err := m.Store.Replace(all, version)
	m.version.Store(fields.Version(version))
	m.synced.Store(err == nil)
	return err
}

// How often a kind is asked for that is not served: it may be that the API server has only just begun, so slowly less often.
const (
	firstLook  = 300 * time.Millisecond
	lookFactor = 1.2
	lastLook   = 30 * time.Second
	// firstRecount is how long after there were more objects than are kept it is looked whether there still are: each time twice as long.
	firstRecount = 10 * time.Second
	lastRecount  = 5 * time.Minute
)

// follow keeps a mirror up to date until ctx ends. lost is told of an error that says that the tenant cannot be reached, or not so.
func (m *mirror) follow(ctx context.Context, lost func(error)) {
	noted := func(err error) error {
		missing := m.optional && apierrors.IsNotFound(err)
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
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			all, err := m.list(ctx)
			return all, noted(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if m.recount != nil && m.watching != nil {
				m.watching, m.recount = nil, nil
				return nil, apierrors.NewResourceExpired("to be listed anew")
			}
			o.FieldSelector = m.only.String()
			w, err := m.watch(ctx, o)
			if m.watching = w; err == nil && m.partial.Load() {
				m.countAgain()
			}
			return w, noted(err)
		},
	}}, nil, m, toolscache.ReflectorOptions{Backoff: &wait.Backoff{
		Duration: firstLook, Factor: lookFactor, Cap: lastLook, Steps: math.MaxInt32, Jitter: 0.1,
	}}).RunWithContext(klog.NewContext(ctx, logr.Discard())) // the session says what is worth saying
}

// list reads all objects, as far as they are kept.
func (m *mirror) list(ctx context.Context) (*metav1.List, error) {
	all := &metav1.List{}
	bytes, whole := 0, true
	version, err := m.each(ctx, func(o runtime.Object) bool {
		o = m.keep(o)
		bytes += weigh(o)
		if whole = m.fits(len(all.Items)+1, bytes); whole {
			all.Items = append(all.Items, runtime.RawExtension{Object: o})
		}
		return whole
	})
	if err == nil {
		m.partial.Store(!whole)
	}
	all.ResourceVersion = version
	return all, err
}

// countAgain has the watch end in a while, and a list follow it.
func (m *mirror) countAgain() {
	if m.recount == nil && !m.hints {
		m.recount = time.AfterFunc(min(firstRecount<<min(max(m.recounts-1, 0), 10), lastRecount), m.watching.Stop)
	}
}

// reading reads lists in answers whose size is bounded, rather than as a stream without end.
type reading struct{ toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is asked by the reflector.
func (*reading) IsWatchListSemanticsUnSupported() bool { return true }
