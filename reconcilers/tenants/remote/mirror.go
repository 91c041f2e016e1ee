package remote

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"butlerlabs.dev/ipam/allocator/kinds/object"
)

// mirror is a bounded copy of the objects of one kind in a tenant, kept by a reflector.
// Its states:
//
//	not synced   no list has ended, or the kind is no longer served
//	absent       the tenant does not serve the kind; also not synced
//	synced       all objects are in the store
//	partial      synced, and some objects are missing because of the bounds
//
// A partial mirror is recounted: after a pause the watch is closed and a list follows,
// which may find fewer objects.
type mirror struct {
	toolscache.Store
	reader
	synced, absent, partial atomic.Bool
	// version is the highest resourceVersion observed, that of deletions included.
	version   atomic.Uint64
	onChanged func()

	// The fields below belong to the goroutine of the reflector.
	objects, bytes int // in the store
	openedWatch    watch.Interface
	recountTimer   *time.Timer
	recounts       int // consecutive lists that were partial
}

// newMirror returns an empty mirror. onChanged is called after each change and must not
// block.
func newMirror(r reader, onChanged func()) *mirror {
	return &mirror{Store: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc), reader: r, onChanged: onChanged}
}

// Add implements cache.Store.
func (m *mirror) Add(o any) error {
	defer m.publishChange(o)
	object := m.trim(o.(runtime.Object))
	before, known, err := m.Get(object)
	if err != nil {
		return err
	}
	objects, bytes := m.objects, m.bytes+sizeOf(object)
	if known {
		bytes -= sizeOf(before)
	} else {
		objects++
	}
	if !m.fitsBounds(objects, bytes) {
		m.partial.Store(true)
		m.scheduleRecount()
		return m.removeObject(object)
	}
	m.objects, m.bytes = objects, bytes
	return m.Store.Add(object)
}

// Update implements cache.Store.
func (m *mirror) Update(o any) error { return m.Add(o) }

// Delete implements cache.Store.
func (m *mirror) Delete(o any) error {
	defer m.publishChange(o)
	return m.removeObject(o)
}

func (m *mirror) removeObject(o any) error {
	if before, known, err := m.Get(o); known && err == nil {
		m.objects, m.bytes = m.objects-1, m.bytes-sizeOf(before)
	}
	return m.Store.Delete(o)
}

// sizeOf returns the bytes of an object in protobuf; 0 for types without that encoding.
func sizeOf(o any) int {
	if sized, ok := o.(interface{ Size() int }); ok {
		return sized.Size()
	}
	return 0
}

// publishChange records the version of an object and calls onChanged.
func (m *mirror) publishChange(o any) {
	if o, err := meta.Accessor(o); err == nil {
		m.version.Store(max(m.version.Load(), object.ResourceVersion(o)))
	}
	m.onChanged()
}

// Replace implements cache.Store. The reflector calls it after a list, with trimmed
// objects.
func (m *mirror) Replace(all []any, version string) error {
	defer m.onChanged()
	m.objects, m.bytes = len(all), 0
	for _, o := range all {
		m.bytes += sizeOf(o)
	}
	if m.recounts++; !m.partial.Load() {
		m.recounts = 0
	}
	err := m.Store.Replace(all, version)
	m.version.Store(object.ParseVersion(version))
	m.synced.Store(err == nil)
	return err
}

// singleObject returns the object of a mirror with a selector for one name; nil if the
// object does not exist.
func (m *mirror) singleObject() *unstructured.Unstructured {
	for _, o := range m.List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			return u
		}
	}
	return nil
}

const (
	// Pauses between two lists of a kind that is not served. The first are short, as an
	// API server that has just started may serve the kind soon.
	firstRelist, relistFactor, lastRelist = 300 * time.Millisecond, 1.2, 30 * time.Second
	// Pauses before a partial mirror is recounted; each twice as long as the pause
	// before.
	firstRecount, lastRecount = 10 * time.Second, 5 * time.Minute
)

// run keeps the mirror up to date until ctx ends. onLost is called with each error after
// which the connection is useless: all errors except a missing optional kind and an
// expired version.
func (m *mirror) run(ctx context.Context, onLost func(error)) {
	classify := func(err error) error {
		missing := m.optional && apierrors.IsNotFound(err)
		m.absent.Store(missing)
		switch {
		case missing:
			m.synced.Store(false)
			m.onChanged()
		case err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			onLost(err)
		}
		return err
	}
	toolscache.NewReflectorWithOptions(&pagedLists{toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			all, err := m.listAll(ctx)
			return all, classify(err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if m.recountTimer != nil && m.openedWatch != nil {
				m.openedWatch, m.recountTimer = nil, nil
				return nil, apierrors.NewResourceExpired("the mirror is partial: a list recounts the objects")
			}
			o.FieldSelector = m.selector.String()
			w, err := m.openWatch(ctx, o)
			if m.openedWatch = w; err == nil && m.partial.Load() {
				m.scheduleRecount()
			}
			return w, classify(err)
		},
	}}, nil, m, toolscache.ReflectorOptions{Backoff: &wait.Backoff{
		Duration: firstRelist, Factor: relistFactor, Cap: lastRelist, Steps: math.MaxInt32, Jitter: 0.1,
	}}).RunWithContext(klog.NewContext(ctx, logr.Discard())) // the session logs and reports an outage
}

// listAll reads the objects of the kind, trimmed, up to the bounds.
func (m *mirror) listAll(ctx context.Context) (*metav1.List, error) {
	all := &metav1.List{}
	bytes, complete := 0, true
	version, err := m.forEach(ctx, func(o runtime.Object) bool {
		o = m.trim(o)
		bytes += sizeOf(o)
		if complete = m.fitsBounds(len(all.Items)+1, bytes); complete {
			all.Items = append(all.Items, runtime.RawExtension{Object: o})
		}
		return complete
	})
	if err == nil {
		m.partial.Store(!complete)
	}
	all.ResourceVersion = version
	return all, err
}

// scheduleRecount closes the watch after a pause. The reflector opens the next watch,
// gets an error, and lists.
func (m *mirror) scheduleRecount() {
	if m.recountTimer == nil && !m.lossy {
		m.recountTimer = time.AfterFunc(min(firstRecount<<min(max(m.recounts-1, 0), 10), lastRecount), m.openedWatch.Stop)
	}
}

// pagedLists makes the reflector list in pages. A list streamed by a watch has no bound.
type pagedLists struct{ toolscache.ListWatch }

// IsWatchListSemanticsUnSupported reports to the reflector that lists are not streamed.
func (*pagedLists) IsWatchListSemanticsUnSupported() bool { return true }
