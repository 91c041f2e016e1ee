package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"

	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/journal"
)

const (
	// freshness is how long an inventory is used although nothing has changed: cooldowns end, and the journal changes.
	freshness = time.Second
	// problemLife is how long a failed watch is reported. A watch that keeps failing fails again within this time.
	problemLife = time.Minute
)

// Feed keeps the stored objects by watching them.
type Feed struct {
	Options
	watched  []*watched
	warnings []string // about objects that are not watched
	changes  atomic.Int64
	leases   *journal.LeaseStore // nil if the journal may not be read

	last        *inventory.Inventory
	lastChanges int64
	lastBuilt   time.Time
}

// watched is the objects of a resource.
type watched struct {
	plural   string
	pools    bool
	informer toolscache.SharedIndexInformer
	problem  atomic.Pointer[problem]
}

// problem is the last failure of a watch.
type problem struct {
	at  time.Time
	err error
}

// Watch watches what the user of the options may read, until ctx ends. Watch returns when all has been read once.
func Watch(ctx context.Context, o Options) (*Feed, error) {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	f := &Feed{Options: o}
	if f.leases, err = journal.NewLeaseStore(o.Config, o.ManagerNamespace, journalTimeout); err != nil {
		return nil, err
	}
	for _, of := range resources {
		if err := f.watch(ctx, client, of); err != nil {
			return nil, err
		}
	}
	if len(f.watched) == 0 {
		return nil, ErrNothingRead
	}
	for _, w := range f.watched {
		go w.informer.RunWithContext(ctx)
	}
	begun := time.Now()
	for _, w := range f.watched {
		for !toolscache.WaitForCacheSync(timeout(ctx, Patience), w.informer.HasSynced) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			f.warn("still reading %s after %s", w.plural, time.Since(begun).Round(time.Second))
		}
	}
	return f, nil
}

// timeout returns a channel that is closed after a time, or at the end of ctx.
func timeout(ctx context.Context, after time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, after)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// watch prepares to watch a resource: in all namespaces, otherwise in the namespace of the flags. A resource that is not installed is left out.
func (f *Feed) watch(ctx context.Context, client dynamic.Interface, of resource) error {
	namespace := metav1.NamespaceAll
	_, err := client.Resource(of.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) && !of.clusterScoped {
		namespace = f.Namespace
		if _, err = client.Resource(of.GroupVersionResource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			f.leaveOut(onlyInNamespace, of.Resource, namespace)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		f.leaveOut(notRead, of.Resource)
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", of.name, err)
	}
	objects := client.Resource(of.GroupVersionResource).Namespace(namespace)
	w := &watched{plural: of.Resource, pools: of.pools, informer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return objects.Watch(ctx, o) },
	}, &unstructured.Unstructured{}, 0, toolscache.Indexers{})}
	failed := func(_ context.Context, _ *toolscache.Reflector, err error) {
		if !errors.Is(err, io.EOF) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			w.problem.Store(&problem{time.Now(), err})
		}
	}
	changed := func(any) { f.changes.Add(1) }
	_, err = w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(any, any) { changed(nil) }})
	if err := errors.Join(err, w.informer.SetTransform(w.decodeWith(of)), w.informer.SetWatchErrorHandlerWithContext(failed)); err != nil {
		return fmt.Errorf("watch %s: %w", of.name, err)
	}
	f.watched = append(f.watched, w)
	return nil
}

// leaveOut warns about objects that are not watched, at once and on every page.
func (f *Feed) leaveOut(format string, values ...any) {
	f.warn(format, values...)
	f.warnings = append(f.warnings, fmt.Sprintf(format, values...))
}

// decodeWith returns a function that turns an object of a watch into its Go type. An object that cannot be decoded stays as it is: the inventory ignores it.
func (w *watched) decodeWith(of resource) toolscache.TransformFunc {
	return func(o any) (any, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil
		}
		raw, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		decoded, err := of.decode(raw)
		if err != nil {
			w.problem.Store(&problem{time.Now(), fmt.Errorf("%s/%s: %w", u.GetNamespace(), u.GetName(), err)})
			return u, nil
		}
		return decoded, nil
	}
}

// Inventory returns the present inventory, and a warning for each part that the inventory lacks. It is not for concurrent use.
func (f *Feed) Inventory(ctx context.Context) (*inventory.Inventory, []string, error) {
	now, changes := f.Now(), f.changes.Load()
	warnings := slices.Clone(f.warnings)
	for _, w := range f.watched {
		if p := w.problem.Load(); p != nil && time.Since(p.at) < problemLife {
			warnings = append(warnings, fmt.Sprintf("%s may be out of date: %v", w.plural, p.err))
		}
	}
	if f.last != nil && changes == f.lastChanges && now.Sub(f.lastBuilt) < freshness {
		return f.last, warnings, nil
	}
	grants, err := f.readJournal(ctx) // before the claims, as in Read
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("open grants are not shown: %v", err))
	}
	i := inventory.New(now, grants)
	for _, pools := range []bool{true, false} {
		for _, w := range f.watched {
			if w.pools != pools {
				continue
			}
			for _, o := range w.informer.GetStore().List() {
				if o, ok := o.(metav1.Object); ok {
					i.Add(o)
				}
			}
		}
	}
	f.last, f.lastChanges, f.lastBuilt = i, changes, now
	return i, warnings, nil
}

// readJournal reads the entries of the journal: one GET. A user who may not read the Lease is not asked again.
func (f *Feed) readJournal(ctx context.Context) ([]journal.Entry, error) {
	if f.leases == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	v, err := f.leases.Read(ctx)
	if apierrors.IsForbidden(err) {
		f.leases = nil
		return nil, nil
	}
	return v.Entries, err
}
