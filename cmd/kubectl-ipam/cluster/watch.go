package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	// freshness is the longest use of an inventory while no object changes. The bound is
	// needed because cooldowns end and the journal changes.
	freshness = time.Second
	// problemLife is the time for which an object with invalid content is reported.
	problemLife = time.Minute
	// clustersLife is the time for which the Clusters of Cluster API are not listed
	// again.
	clustersLife = 10 * time.Second
	// retryMissing is the interval of the attempts to watch a resource that is not
	// installed.
	retryMissing = 10 * time.Second
	// maxScopes bounds the number of inventories kept for reuse: an inventory of 30,000
	// claims takes about 60 MB.
	maxScopes = 4
)

// Feed watches the stored objects, and keeps their current versions.
type Feed struct {
	Options
	client  dynamic.Interface
	reader  *rest.RESTClient
	changes atomic.Int64
	leases  *journal.LeaseStore // nil if the user may not read the journal
	built   map[string]built    // key of a Scope -> inventory
	contact contact

	clusters     inventory.Clusters // nil if the user may not list the Clusters
	clustersIn   string             // namespace of the Clusters; "" for all namespaces
	clustersRead time.Time

	mu      sync.Mutex
	watched []*watched        // pools first
	leftOut map[string]string // resource that is not watched in all namespaces -> watched namespace; "" if the resource is not watched
}

// built is an inventory, with the number of changes before the build and the time of the
// build.
type built struct {
	*inventory.Inventory
	changes int64
	at      time.Time
}

// watched contains the current versions of the objects of a resource, kept by an
// informer.
type watched struct {
	of       resource
	informer toolscache.SharedIndexInformer
	problem  atomic.Pointer[problem]
	failing  atomic.Bool // the last list or watch failed
}

// problem is an object with invalid content.
type problem struct {
	at  time.Time
	err error
}

// Watch watches the objects that the user of the options may list, until ctx ends. Watch
// returns when every watched resource has been listed once. Watch also watches resources
// that are installed later.
func Watch(ctx context.Context, o Options) (feed *Feed, err error) {
	ctx, end := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			end()
		}
	}()
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	readiness, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	f := &Feed{Options: o, client: client, reader: readiness, built: map[string]built{}, leftOut: map[string]string{}}
	f.contact.record(time.Now(), "")
	if f.leases, err = journal.NewLeaseStore(o.Config, o.ManagerNamespace, journalTimeout); err != nil {
		return nil, err
	}
	var missing []resource
	for _, of := range resources {
		switch installed, err := f.watch(ctx, of); {
		case err != nil:
			return nil, err
		case !installed:
			missing = append(missing, of)
		}
	}
	if len(f.watched) == 0 {
		return nil, ErrNothingRead
	}
	f.warnOfLeftOut()
	begun := time.Now()
	for _, w := range f.watched {
		for !toolscache.WaitForCacheSync(timeout(ctx, Patience), w.informer.HasSynced) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			f.warn("still reading %s after %s", w.of.Resource, time.Since(begun).Round(time.Second))
		}
	}
	if len(missing) > 0 {
		go f.watchMissing(ctx, missing)
	}
	f.contact.record(time.Now(), "")
	go f.follow(ctx, readiness)
	return f, nil
}

// watchMissing tries to watch resources that are not installed, every retryMissing, until
// each resource is installed or ctx ends.
func (f *Feed) watchMissing(ctx context.Context, missing []resource) {
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryMissing):
		}
		missing = slices.DeleteFunc(missing, func(of resource) bool {
			installed, err := f.watch(ctx, of)
			if installed && err == nil {
				f.warnOfLeftOut()
			}
			return installed && err == nil
		})
	}
}

// current returns the watched resources, pools first, and the warnings about unwatched
// objects.
func (f *Feed) current() ([]*watched, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := slices.ContainsFunc(f.watched, func(w *watched) bool {
		_, partly := f.leftOut[w.of.name]
		return !partly && !w.of.clusterScoped
	})
	return slices.Clone(f.watched), describeLeftOut(f.User, f.leftOut, complete)
}

// timeout returns a channel that is closed after a time, or at the end of ctx.
func timeout(ctx context.Context, after time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, after)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

// watch watches a resource in all namespaces; if the user lacks the right for all
// namespaces, in the namespace of the options. installed is false if the API server does
// not serve the resource.
func (f *Feed) watch(ctx context.Context, of resource) (installed bool, err error) {
	if served, err := f.isServed(ctx, of); err != nil || !served {
		return false, err
	}
	namespace, err := findScope(ctx, f.client, of, f.Namespace)
	switch {
	case apierrors.IsNotFound(err): // removed after the call of isServed
		return false, nil
	case apierrors.IsForbidden(err):
		f.leaveOut(of, "")
		return true, nil
	case err != nil:
		return false, fmt.Errorf("list %s: %w", of.name, err)
	case namespace != metav1.NamespaceAll:
		f.leaveOut(of, namespace)
	}
	w, err := newWatched(f.client, of, namespace, "")
	if err != nil {
		return false, err
	}
	changed := func(any) { f.changes.Add(1) }
	if _, err := w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: changed, DeleteFunc: changed, UpdateFunc: func(any, any) { changed(nil) }}); err != nil {
		return false, fmt.Errorf("watch %s: %w", of.name, err)
	}
	go w.informer.RunWithContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = append(f.watched, w)
	slices.SortStableFunc(f.watched, func(x, y *watched) int {
		return slices.Index(inventory.Resources, x.of.name) - slices.Index(inventory.Resources, y.of.name)
	})
	return true, nil
}

// findScope returns the namespace in which the user may list a resource: "" for all
// namespaces, otherwise the given namespace.
func findScope(ctx context.Context, client dynamic.Interface, of resource, namespace string) (string, error) {
	resources := client.Resource(of.GroupVersionResource)
	_, err := resources.List(ctx, metav1.ListOptions{Limit: 1})
	if !apierrors.IsForbidden(err) || of.clusterScoped || namespace == "" {
		return metav1.NamespaceAll, err
	}
	_, err = resources.Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	return namespace, err
}

// newWatched returns a watched resource for the objects in a namespace that match a field
// selector. The caller starts the informer.
func newWatched(client dynamic.Interface, of resource, namespace, selector string) (*watched, error) {
	objects := client.Resource(of.GroupVersionResource).Namespace(namespace)
	w := &watched{of: of}
	w.informer = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := objects.List(ctx, o)
			w.record(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			events, err := objects.Watch(ctx, o)
			w.record(err)
			return events, err
		},
	}, &unstructured.Unstructured{}, 0, toolscache.Indexers{})
	recorded := func(context.Context, *toolscache.Reflector, error) {} // the calls have recorded the error
	if err := errors.Join(w.informer.SetTransform(w.decode), w.informer.SetWatchErrorHandlerWithContext(recorded)); err != nil {
		return nil, fmt.Errorf("watch %s: %w", of.name, err)
	}
	return w, nil
}

// record records the outcome of a list or watch. The informer repeats a failed call until
// a call succeeds. The informer does not report a refused connection to its error
// handler, so the calls themselves record the failure. A resource that is no longer
// installed has no objects, and an expired version leads to a list.
func (w *watched) record(err error) {
	w.failing.Store(err != nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsNotFound(err))
}

// leaveOut declares that the objects of a resource are watched in only one namespace, or
// in no namespace ("").
func (f *Feed) leaveOut(of resource, namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leftOut[of.name] = namespace
}

// warnOfLeftOut logs the warnings about objects that are not watched.
func (f *Feed) warnOfLeftOut() {
	_, warnings := f.current()
	for _, warning := range warnings {
		f.warn("%s", warning)
	}
}

// decode converts an object of a watch to its Go type. An object with invalid content
// stays unstructured, is recorded as a problem, and is ignored by the inventory.
func (w *watched) decode(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	decoded, err := w.of.decode(raw)
	if err != nil {
		w.problem.Store(&problem{time.Now(), fmt.Errorf("%s/%s: %w", u.GetNamespace(), u.GetName(), err)})
		return u, nil
	}
	return decoded, nil
}

// Inventory returns the present inventory of the objects that a reader may list, and a
// warning for each incomplete part. Readers with equal Scopes may get the same inventory.
// Inventory is not safe for concurrent use.
func (f *Feed) Inventory(ctx context.Context, scope Scope) (*inventory.Inventory, []string, error) {
	now, changes := f.Now(), f.changes.Load()
	watched, warnings := f.current()
	if scope != nil {
		warnings = append(warnings, scope.warnings(watched)...)
	}
	for _, w := range watched {
		if warning := w.warning(scope); warning != "" {
			warnings = append(warnings, warning)
		}
	}
	since, _ := f.Outdated()
	key := scope.key()
	// The inventory is not built again while the objects are outdated: a page shows the
	// cooldowns of the same time, and does not wait for the journal.
	if last, known := f.built[key]; known && changes == last.changes && (now.Sub(last.at) < freshness || !since.IsZero()) {
		return last.Inventory, warnings, nil
	}
	var i *inventory.Inventory
	if scope == nil {
		grants, err := f.readJournal(ctx) // before the claims, as in Read
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("open grants are not shown: %v", err))
		}
		i = inventory.New(now, grants)
	} else {
		i = inventory.NewRestricted(now, scope.contains)
	}
	f.mu.Lock()
	for resource, namespace := range f.leftOut {
		i.LeaveOut(resource, namespace)
	}
	f.mu.Unlock()
	for _, w := range watched {
		if scope != nil && scope[w.of.name] != AllNamespaces {
			i.LeaveOut(w.of.name, scope[w.of.name])
		}
		for _, o := range w.informer.GetStore().List() {
			if o, ok := o.(metav1.Object); ok {
				i.Add(o)
			}
		}
	}
	if err := f.addClusters(ctx, i, scope); err != nil {
		warnings = append(warnings, fmt.Sprintf("the reasons of claims that wait for Clusters are not shown: %v", err))
	}
	if len(f.built) >= maxScopes {
		clear(f.built)
	}
	f.built[key] = built{i, changes, now}
	return i, warnings, nil
}

// addClusters adds the Clusters in a Scope to an inventory, as Read does. The Clusters
// are listed at most once in clustersLife.
func (f *Feed) addClusters(ctx context.Context, i *inventory.Inventory, scope Scope) error {
	namespace, some := scope[resourceCluster.name]
	if scope != nil && !some { // stay unknown
		return nil
	}
	if now := f.Now(); i.NamesCluster() && now.Sub(f.clustersRead) >= clustersLife {
		ctx, cancel := context.WithTimeout(ctx, journalTimeout)
		defer cancel()
		stored, in, err := readableClusters(ctx, f.reader, f.Namespace)
		if err != nil {
			return err
		}
		f.clusters, f.clustersIn, f.clustersRead = stored, in, now
	}
	switch {
	case scope == nil || namespace == AllNamespaces:
		i.SetClusters(f.clusters, f.clustersIn)
	case f.clustersIn == "" || f.clustersIn == namespace:
		i.SetClusters(f.clusters, namespace)
	}
	return nil
}

// warning returns a text for a reader about an object with invalid content; "" without
// such an object.
func (w *watched) warning(scope Scope) string {
	p := w.problem.Load()
	if p == nil || time.Since(p.at) >= problemLife {
		return ""
	}
	text := w.of.Resource + " may be out of date"
	if scope == nil { // with a Scope, the error may name a hidden object
		text += ": " + p.err.Error()
	}
	return text
}

// readJournal reads the entries of the journal with one GET. If the user may not read the
// Lease, readJournal makes no further call.
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
