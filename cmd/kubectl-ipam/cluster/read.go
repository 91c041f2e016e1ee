package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// Read lists the pools and claims, and reads the journal. With poolsOnly, the Inventory
// has no claims.
func Read(ctx context.Context, o Options, poolsOnly bool) (*inventory.Inventory, error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	grants, err := o.readJournal(ctx) // before the claims: if a claim fulfils a grant between the two reads, the token of the claim identifies the grant
	if err != nil {
		return nil, err
	}
	r := reader{Options: o, client: client, inventory: inventory.New(o.Now(), grants)}
	for _, pools := range []bool{true, false} {
		group, ctx := errgroup.WithContext(ctx)
		for _, of := range resources {
			if of.pools == pools && (pools || !poolsOnly) {
				group.Go(func() error { return r.list(ctx, of) })
			}
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	if err := addClusters(ctx, client, o.Namespace, r.inventory); err != nil {
		o.warn("the reasons of claims that wait for Clusters are not shown: %v", err)
	}
	r.report(true)
	for _, warning := range describeLeftOut(o.User, r.inventory.LeftOut(), r.complete) {
		o.warn("%s", warning)
	}
	if r.unread == len(resources) {
		return nil, ErrNothingRead
	}
	return r.inventory, nil
}

// readJournal returns the entries of the journal; nil if the journal cannot be read. A
// failed read causes a warning, but not a missing right. The error is not nil if the API
// server cannot be reached.
func (o Options) readJournal(ctx context.Context) ([]journal.Entry, error) {
	store, err := journal.NewLeaseStore(o.Config, o.ManagerNamespace, journalTimeout)
	if err != nil {
		return nil, nil //nolint:nilerr // the reads of the objects report the error
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	v, err := store.Read(ctx)
	switch {
	case apierrors.IsForbidden(err): // the viewer role does not contain the Lease
		return nil, nil
	case IsUnreachable(err) && !errors.Is(err, context.DeadlineExceeded): // after journalTimeout, the other objects are still read
		return nil, fmt.Errorf("read the journal: %w", err)
	case err != nil:
		o.warn("open grants are not shown: %v", err)
		return nil, nil
	}
	return append([]journal.Entry{}, v.Entries...), nil
}

// reader lists resources page by page.
type reader struct {
	Options
	client *rest.RESTClient

	mu        sync.Mutex
	inventory *inventory.Inventory
	objects   int  // read so far
	complete  bool // a namespaced resource was read in all namespaces
	unread    int  // resources that are not installed or may not be read
}

// list lists a resource in all namespaces; if the user lacks the right for all
// namespaces, in the namespace of the options. A resource that is not installed, or that
// the user may not list, counts as empty.
func (r *reader) list(ctx context.Context, of resource) error {
	err := r.listIn(ctx, of, "") // addresses are free if no object of any namespace owns them
	everywhere := err == nil
	if apierrors.IsForbidden(err) {
		if served, problem := r.isServed(ctx, of); problem == nil && !served {
			r.countUnread()
			return nil
		}
	}
	if apierrors.IsForbidden(err) && !of.clusterScoped {
		if err = r.listIn(ctx, of, r.Namespace); err == nil {
			r.leaveOut(of, r.Namespace)
		}
	}
	switch {
	case apierrors.IsNotFound(err): // this API is not installed
		r.countUnread()
		return nil
	case apierrors.IsForbidden(err):
		r.leaveOut(of, "")
		r.countUnread()
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", of.name, err)
	case everywhere && !of.clusterScoped:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.complete = true
	}
	return nil
}

func (r *reader) countUnread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread++
}

// leaveOut declares that the objects of a resource were read in only one namespace, or in
// no namespace ("").
func (r *reader) leaveOut(of resource, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inventory.LeaveOut(of.name, namespace)
}

// listIn adds the objects of a resource to the inventory page by page, to bound the
// memory for undecoded responses.
func (r *reader) listIn(ctx context.Context, of resource, namespace string) error {
	next := ""
	for {
		raw, err := r.client.Get().AbsPath(path(of.GroupVersionResource, namespace)...).Param("limit", fmt.Sprint(pageSize)).Param("continue", next).Do(ctx).Raw()
		if apierrors.IsResourceExpired(err) && next != "" { // reading the list took longer than etcd keeps old versions
			next = "" // list again from the start: the inventory ignores versions of an object that are already added
			continue
		}
		if err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return fmt.Errorf("page of %s: %w", of.name, err)
		}
		objects := make([]metav1.Object, len(page.Items))
		for n, item := range page.Items {
			if objects[n], err = of.decode(item); err != nil {
				return fmt.Errorf("page of %s: %w", of.name, err)
			}
		}
		r.add(objects)
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// add adds objects to the inventory, and reports the number of objects read.
func (r *reader) add(objects []metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		r.inventory.Add(o)
	}
	r.objects += len(objects)
	r.report(false)
}

func (r *reader) report(done bool) {
	if r.Progress != nil {
		r.Progress(r.objects, done)
	}
}
