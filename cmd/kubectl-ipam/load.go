package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

const (
	pageSize = 500
	// patience is how long a command reads without reporting progress.
	patience = 2 * time.Second
	// journalTimeout bounds the read of the journal, without which a command still answers.
	journalTimeout = 5 * time.Second
)

// Warnings about objects that are not read.
const (
	onlyInNamespace = "%s: only those in namespace %s, as you may not list all: others are shown as free"
	notRead         = "%s: not read, as you may not list them"
)

var errNothingRead = errors.New("no resource of Butler IPAM could be read: is Butler IPAM installed, and does the viewer role apply to you?")

// resource describes how the objects of a resource are read.
type resource struct {
	name          string // plural and group
	version       string
	clusterScoped bool
	pools         bool
	decode        func(item json.RawMessage) (metav1.Object, error)
}

var resources = []resource{
	{butler.ResourceNetworkPool, "v1alpha1", false, true, decodeAs[butlerv1.NetworkPool]},
	{metal3.ResourceIPPool, "v1alpha1", false, true, decodeAs[metal3v1.IPPool]},
	{novaedge.ResourceProxyIPPool, "v1alpha1", true, true, decodeAs[novaedgev1.ProxyIPPool]},
	{butler.ResourceIPAllocation, "v1alpha1", false, false, decodeAs[butlerv1.IPAllocation]},
	{metal3.ResourceIPClaim, "v1alpha1", false, false, decodeAs[metal3v1.IPClaim]},
	{metal3.ResourceIPAddress, "v1alpha1", false, false, decodeAs[metal3v1.IPAddress]},
	{clusterapi.ResourceIPAddressClaim, "v1beta2", false, false, decodeAs[ipamv1.IPAddressClaim]},
	{clusterapi.ResourceIPAddress, "v1beta2", false, false, decodeAs[ipamv1.IPAddress]},
	{novaedge.ResourceProxyVIP, "v1alpha1", true, false, decodeAs[novaedgev1.ProxyVIP]},
}

func decodeAs[T any, P interface {
	*T
	metav1.Object
}](item json.RawMessage) (metav1.Object, error) {
	o := P(new(T))
	err := json.Unmarshal(item, o)
	o.SetManagedFields(nil)
	return o, err
}

// namespace returns the namespace of the flags, or of the kubeconfig.
func (a *app) namespace() string {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.kubeconfig, &a.overrides).Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return namespace
}

// config returns the access to the cluster.
func (a *app) config() (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.kubeconfig, &a.overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	config.QPS = -1 // the API server's own flow control is enough for reads page by page
	config.UserAgent = "kubectl-ipam/" + version
	config.WarningHandler = rest.NoWarnings{} // for authors of pools
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config, nil
}

// load reads all pools and claims, and the journal.
func (a *app) load(ctx context.Context) (*inventory.Inventory, error) {
	return a.read(ctx, func(resource) bool { return true })
}

// loadPools reads the pools alone.
func (a *app) loadPools(ctx context.Context) (*inventory.Inventory, error) {
	return a.read(ctx, func(r resource) bool { return r.pools })
}

func (a *app) read(ctx context.Context, wanted func(resource) bool) (*inventory.Inventory, error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	grants := a.readJournal(ctx, config) // before the claims: a grant that a claim fulfils meanwhile is known by its token
	r := reader{app: a, client: client, begun: time.Now(), inventory: inventory.New(a.now(), grants)}
	for _, pools := range []bool{true, false} {
		group, ctx := errgroup.WithContext(ctx)
		for _, of := range resources {
			if wanted(of) && of.pools == pools {
				group.Go(func() error { return r.list(ctx, of) })
			}
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	r.finish()
	if r.unread == len(resources) {
		return nil, errNothingRead
	}
	return r.inventory, nil
}

// readJournal returns the entries of the journal; nil, after a warning, if the journal cannot be read.
func (a *app) readJournal(ctx context.Context, config *rest.Config) []journal.Entry {
	store, err := journal.NewLeaseStore(config, a.managerNamespace, journalTimeout)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	v, err := store.Read(ctx)
	switch {
	case apierrors.IsForbidden(err): // the viewer role does not contain the Lease
		return nil
	case err != nil:
		a.warn("open grants are not shown: %v", err)
		return nil
	}
	return append([]journal.Entry{}, v.Entries...)
}

// warn prints a line that begins with "warning:".
func (a *app) warn(format string, values ...any) {
	_, _ = fmt.Fprintf(a.err, "warning: "+format+"\n", values...)
}

// reader lists resources page by page.
type reader struct {
	*app
	client *rest.RESTClient
	begun  time.Time

	mu        sync.Mutex
	inventory *inventory.Inventory
	objects   int // read so far
	reported  bool
	unread    int // resources that are not installed or may not be read
}

// list lists a resource: in all namespaces, otherwise in the namespace of the flags. A resource that is not installed, or that the user may not list, is empty.
func (r *reader) list(ctx context.Context, of resource) error {
	err := r.listIn(ctx, of, "") // -n limits the output only: owners in all namespaces decide what is free
	plural, _, _ := strings.Cut(of.name, ".")
	if apierrors.IsForbidden(err) && !of.clusterScoped {
		namespace := r.namespace()
		if err = r.listIn(ctx, of, namespace); err == nil {
			r.leaveOut(of, namespace)
			if !r.quiet {
				r.warn(onlyInNamespace, plural, namespace)
			}
		}
	}
	switch {
	case apierrors.IsNotFound(err): // this API is not installed
		r.countUnread()
		return nil
	case apierrors.IsForbidden(err):
		if !r.quiet {
			r.warn(notRead, plural)
		}
		r.leaveOut(of, "")
		r.countUnread()
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", of.name, err)
	}
	return nil
}

func (r *reader) countUnread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unread++
}

// leaveOut declares that the objects of a resource were read in one namespace only, or not at all ("").
func (r *reader) leaveOut(of resource, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inventory.LeaveOut(of.name, namespace)
}

// listIn adds the objects of a resource to the inventory page by page, so that the memory does not grow with the length of the list.
func (r *reader) listIn(ctx context.Context, of resource, namespace string) error {
	plural, group, _ := strings.Cut(of.name, ".")
	path := []string{"apis", group, of.version}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	path = append(path, plural)
	next := ""
	for {
		raw, err := r.client.Get().AbsPath(path...).Param("limit", fmt.Sprint(pageSize)).Param("continue", next).Do(ctx).Raw()
		if apierrors.IsResourceExpired(err) && next != "" { // the list took longer than etcd keeps old versions
			next = "" // the inventory ignores the versions that it has
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

// add adds objects to the inventory, and reports on stderr how many were read, if the reading takes long.
func (r *reader) add(objects []metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range objects {
		r.inventory.Add(o)
	}
	if r.objects += len(objects); time.Since(r.begun) < patience {
		return
	}
	r.reported = true
	_, _ = fmt.Fprintf(r.err, "\rread %d objects …", r.objects)
}

func (r *reader) finish() {
	if r.reported {
		_, _ = fmt.Fprintf(r.err, "\rread %d objects in %s\n", r.objects, time.Since(r.begun).Round(100*time.Millisecond))
	}
}

// selects reports whether the flags select an object in a namespace.
func (a *app) selects(k inventory.Key, domain string) bool {
	return a.inDomain(domain) && (a.allNamespaces || a.overrides.Context.Namespace == "" || k.Namespace == "" || k.Namespace == a.overrides.Context.Namespace)
}

// may reports whether the user has a right. An error counts as no.
func may(ctx context.Context, client *rest.RESTClient, verb, resource, namespace, name string) bool {
	plural, group, _ := strings.Cut(resource, ".")
	body, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: plural, Namespace: namespace, Name: name,
		}},
	})
	if err != nil {
		return false
	}
	var review authorizationv1.SelfSubjectAccessReview
	raw, err := client.Post().AbsPath("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	return err == nil && json.Unmarshal(raw, &review) == nil && review.Status.Allowed
}
