package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// installationTimeout bounds a read of KeepInstallation. The read of the journal alone
// may take health.JournalRenewal.
const installationTimeout = 10 * time.Second

// Checks selects the defects that Check searches for.
type Checks struct {
	Areas   []string      // health.AreaAddresses and so on; nil means every area
	Grace   time.Duration // after which a waiting claim, a deletion or a rollout is a finding
	Version string        // of the program, compared with the version of the manager
	Create  bool          // try a create by a dry run, which reserves nothing
	// ClusterDomain is the routing domain of the cluster's network; nil if it is not
	// given: the default one, or the only one.
	ClusterDomain *string
	again         bool // only what a second read may show differently
}

func (c Checks) wants(area string) bool { return len(c.Areas) == 0 || slices.Contains(c.Areas, area) }

// settling is the pause between the two reads of Check: the manager ends the intermediate
// states of a change sooner.
const settling = time.Second

// Check reads the pools, the claims and the installation, and returns their defects and
// the inventory. The lists of a read are of different times: Check reads again what may
// look like a defect for this reason, and returns what both reads show.
func Check(ctx context.Context, o Options, checks Checks) (health.Report, *inventory.Inventory, error) {
	h, i, err := look(ctx, o, checks)
	if err != nil {
		return h, i, err
	}
	var doubtful []health.Finding
	h.Findings = slices.DeleteFunc(h.Findings, func(f health.Finding) bool {
		if f.IsDoubtful() {
			doubtful = append(doubtful, f)
		}
		return f.IsDoubtful()
	})
	if len(doubtful) == 0 {
		return h, i, nil
	}
	checks.again, checks.Areas = true, nil
	for _, f := range doubtful {
		checks.Areas = append(checks.Areas, f.Area())
	}
	select {
	case <-ctx.Done():
		return health.Report{}, nil, ctx.Err()
	case <-time.After(settling):
	}
	second, now, err := look(ctx, o, checks)
	if err != nil {
		return health.Report{}, nil, err
	}
	h.Findings = append(h.Findings, health.See(doubtful, i).Confirm(second.Findings, now)...)
	health.SortFindings(h.Findings)
	h.Passed = append(h.Passed, second.Passed...)
	for _, line := range second.NotChecked {
		if !slices.Contains(h.NotChecked, line) {
			h.NotChecked = append(h.NotChecked, line)
		}
	}
	return h, now, nil
}

// look reads the pools, the claims and the installation once, and returns their defects
// and the inventory.
func look(ctx context.Context, o Options, checks Checks) (health.Report, *inventory.Inventory, error) {
	i, err := Read(ctx, o, false)
	if err != nil {
		return health.Report{}, nil, err
	}
	n, err := ReadInstallation(ctx, o, checks)
	if err != nil {
		return health.Report{}, nil, err
	}
	if checks.Create && checks.wants(health.AreaInstallation) {
		n.tryCreates(ctx, i)
	}
	return n.Check(i), i, ctx.Err()
}

// Installation contains the objects beside pools and claims that show defects: Clusters,
// Nodes, Services, and the objects of the manager. An Installation is safe for concurrent
// use.
type Installation struct {
	Options
	checks Checks
	client *rest.RESTClient
	parts  []part // in the order of the output

	kept *kept // nil if the installation is checked only once
}

// kept confirms the addresses in use of an installation that is kept for some time, and
// is checked with later inventories: a finding that the first check of the installation
// before does not show either may be the result of the time between both reads.
type kept struct {
	before health.Seen // findings of the first check of the installation before

	mu   sync.Mutex
	seen health.Seen // findings of the first check; nil before
}

// firstSeen returns the findings of the first check; nil without a check.
func (k *kept) firstSeen() health.Seen {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}

// confirm removes the findings about addresses in use that are not confirmed yet, and
// lists them as not checked.
func (k *kept) confirm(h *health.Report, i *inventory.Inventory) {
	var used []health.Finding
	h.Findings = slices.DeleteFunc(h.Findings, func(f health.Finding) bool {
		if f.ID == health.UsedAddress.ID {
			used = append(used, f)
		}
		return f.ID == health.UsedAddress.ID
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = health.See(used, i)
	}
	confirmed := k.before.Confirm(used, i)
	h.Findings = append(h.Findings, confirmed...)
	if more := len(used) - len(confirmed); more > 0 {
		h.NotChecked = append(h.NotChecked, fmt.Sprintf("%s of Nodes and Services (until the next read of both)", allocator.Counted(more, "address")))
	}
}

// part returns the findings that need both an inventory and a part of an installation.
type part func(*inventory.Inventory) health.Report

// ReadInstallation reads an installation. A failed read of an object is not an error:
// Check lists the object as not checked.
func ReadInstallation(ctx context.Context, o Options, checks Checks) (*Installation, error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	n := &Installation{Options: o, checks: checks, client: client}
	if checks.wants(health.AreaAddresses) {
		n.readClusters(ctx)
	}
	if checks.wants(health.AreaPools) {
		n.readUses(ctx)
		n.readNetworks(ctx)
		n.readMovedRecords(ctx)
	}
	if checks.wants(health.AreaInstallation) && !checks.again {
		n.readJournal(ctx)
		n.readWebhooks(ctx)
		n.readReplicas(ctx)
		if !checks.Create {
			n.leaveOut("a create", "kubectl ipam check tries one by a dry run")
		}
	}
	return n, nil
}

// KeepInstallation returns a function that reads an installation and returns the result
// again until the result is older than life. An address in use is a finding from the
// second read on. The function is safe for concurrent use: concurrent callers wait for a
// single read, which ends after at most installationTimeout.
func KeepInstallation(o Options, checks Checks, life time.Duration) func(context.Context) (*Installation, error) {
	var mu sync.Mutex
	var last *Installation
	var read time.Time
	return func(ctx context.Context) (*Installation, error) {
		mu.Lock()
		defer mu.Unlock()
		if last != nil && time.Since(read) < life {
			return last, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), installationTimeout) // other callers wait for the read: the end of ctx must not cancel the read
		defer cancel()
		n, err := ReadInstallation(ctx, o, checks)
		if err != nil {
			return nil, err
		}
		n.kept = &kept{}
		if last != nil {
			n.kept.before = last.kept.firstSeen()
		}
		last, read = n, time.Now()
		return n, nil
	}
}

// Check returns the defects of an Inventory and of the installation.
func (n *Installation) Check(i *inventory.Inventory) health.Report {
	h := health.Check(i, n.checks.Grace)
	for _, of := range n.parts {
		p := of(i)
		h.Passed, h.Findings, h.NotChecked = append(h.Passed, p.Passed...), append(h.Findings, p.Findings...), append(h.NotChecked, p.NotChecked...)
	}
	h.Findings = slices.DeleteFunc(h.Findings, func(f health.Finding) bool { return !n.checks.wants(f.Area()) })
	if n.kept != nil {
		n.kept.confirm(&h, i)
	}
	health.SortFindings(h.Findings)
	return h
}

// add adds a part.
func (n *Installation) add(p part) { n.parts = append(n.parts, p) }

// addFindings adds a part that depends on no inventory. passed is the line for a check
// without findings; "" for no line.
func (n *Installation) addFindings(list []health.Finding, passed string) {
	n.add(func(*inventory.Inventory) health.Report { return healthOf(list, passed) })
}

// healthOf returns a report with findings. passed is the line for a check without
// findings; "" for no line.
func healthOf(list []health.Finding, passed string) health.Report {
	h := health.Report{Findings: list}
	if passed != "" {
		h.Passed = []string{passed}
	}
	return h
}

// leaveOut adds a line about an unchecked object or list.
func (n *Installation) leaveOut(what, why string) {
	n.add(func(*inventory.Inventory) health.Report { return notChecked(what, why) })
}

// notChecked returns a report with a line about an unchecked object or list.
func notChecked(what, why string) health.Report {
	return health.Report{NotChecked: []string{what + " (" + why + ")"}}
}

// reasonOf returns the reason for a failed read of an object or a list.
func reasonOf(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not served"
	}
	return err.Error()
}

// get reads an object.
//
//	found   read    outcome
//	true    true    the object is in into
//	false   true    the object is not stored
//	false   false   the read failed; get adds a line about the object
func (n *Installation) get(ctx context.Context, what string, into any, path ...string) (found, read bool) {
	raw, err := n.client.Get().AbsPath(path...).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		n.leaveOut(what, reasonOf(err))
		return false, false
	}
	return err == nil, true
}

// listOf reads a list page by page and passes each item to each. If the read fails,
// listOf adds a line about the list and returns false.
func listOf[T any](ctx context.Context, n *Installation, what, selector string, each func(T), path ...string) bool {
	err := listPages(ctx, n.client, selector, each, path...)
	if err != nil {
		n.leaveOut(what, reasonOf(err))
	}
	return err == nil
}

func listPages[T any](ctx context.Context, client *rest.RESTClient, selector string, each func(T), path ...string) error {
	next := ""
	for {
		raw, err := client.Get().AbsPath(path...).Param("labelSelector", selector).Param("limit", fmt.Sprint(pageSize)).Param("continue", next).Do(ctx).Raw()
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			each(item)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// collect returns a function that appends an item to a slice.
func collect[T any](into *[]T) func(T) { return func(item T) { *into = append(*into, item) } }

// readClusters reads the Clusters of Cluster API. An error matters only if claims name
// Clusters.
func (n *Installation) readClusters(ctx context.Context) {
	stored, err := listClusters(ctx, n.client, "")
	n.add(func(i *inventory.Inventory) health.Report {
		switch {
		case len(health.Clusters(i)) == 0:
			return health.Report{}
		case err != nil:
			return notChecked("Clusters", reasonOf(err))
		}
		return healthOf(health.CheckClusters(i, stored, n.checks.Grace), "")
	})
}

// readUses reads the addresses of Nodes and of Services.
func (n *Installation) readUses(ctx context.Context) {
	var uses []health.Use
	var networks []health.Network
	use := func(u health.Use, address string) {
		if a, err := netip.ParseAddr(address); err == nil { // not a host name
			u.Address = allocator.Range{First: a.Unmap(), Last: a.Unmap()}
			uses = append(uses, u)
		}
	}
	// The manager avoids the addresses that it watches: those of SourceOf in
	// reconcilers/tenants/platform.
	listOf(ctx, n, "Nodes", "", func(node corev1.Node) {
		for _, a := range node.Status.Addresses {
			use(health.Use{By: "Node " + node.Name, UID: string(node.UID), Avoided: a.Type == corev1.NodeInternalIP}, a.Address)
		}
		for _, cidr := range node.Spec.PodCIDRs {
			if r, err := allocator.ParseRange(cidr); err == nil {
				networks = append(networks, health.Network{Name: "the Pods of Node " + node.Name, Range: r})
			}
		}
	}, "api", "v1", "nodes")
	listOf(ctx, n, "Services", "", func(s corev1.Service) {
		u := health.Use{By: "Service " + s.Namespace + "/" + s.Name, UID: string(s.UID), Service: s.Namespace + "/" + s.Name}
		_, requestsVIP := s.Annotations[novaedgev1.AnnotationVIPMode]
		u.Avoided = !requestsVIP && s.Spec.Type == corev1.ServiceTypeLoadBalancer
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			use(u, ingress.IP)
		}
		u.Avoided = s.Spec.Type != corev1.ServiceTypeExternalName
		for _, external := range s.Spec.ExternalIPs {
			use(u, external)
		}
	}, "api", "v1", "services")
	owned := uses
	handed, err := n.readAddressPools(ctx)
	if err != nil { // which claims are MetalLB's is not known
		n.leaveOut("IPAddressPools of MetalLB", reasonOf(err))
		owned = slices.DeleteFunc(slices.Clone(uses), func(u health.Use) bool { return u.Service != "" })
	}
	n.add(func(i *inventory.Inventory) health.Report {
		return healthOf(slices.Concat(health.CheckUses(i, n.checks.ClusterDomain, uses), health.CheckOwnedUses(i, n.checks.ClusterDomain, owned, handed), health.CheckNetworks(i, n.checks.ClusterDomain, networks)), "")
	})
}

// readAddressPools lists the addresses of each IPAddressPool of MetalLB in this cluster.
func (n *Installation) readAddressPools(ctx context.Context) (pools [][]allocator.Range, err error) {
	type addressPool struct {
		Spec struct {
			Addresses []string `json:"addresses"`
		} `json:"spec"`
	}
	of := resource{GroupVersionResource: schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}}
	err = listPages(ctx, n.client, "", func(p addressPool) {
		var ranges []allocator.Range
		for _, text := range p.Spec.Addresses {
			if r, err := allocator.ParseRange(text); err == nil {
				ranges = append(ranges, r)
			}
		}
		pools = append(pools, ranges)
	}, path(of.GroupVersionResource, "")...)
	if apierrors.IsForbidden(err) {
		if served, unknown := n.isServed(ctx, of); unknown == nil && !served {
			return nil, nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pools, err
}

func (n *Installation) readNetworks(ctx context.Context) {
	var networks []health.Network
	listOf(ctx, n, "ServiceCIDRs", "", func(s networkingv1.ServiceCIDR) {
		for _, cidr := range s.Spec.CIDRs {
			if r, err := allocator.ParseRange(cidr); err == nil {
				networks = append(networks, health.Network{Name: "the Services", Range: r})
			}
		}
	}, "apis", "networking.k8s.io", "v1", "servicecidrs")
	n.add(func(i *inventory.Inventory) health.Report {
		return healthOf(health.CheckNetworks(i, n.checks.ClusterDomain, networks), "")
	})
}

func (n *Installation) readMovedRecords(ctx context.Context) {
	var records []corev1.ConfigMap
	if listOf(ctx, n, "records of moved ranges", poolrecord.LabelMoved, collect(&records), "api", "v1", "namespaces", n.ManagerNamespace, "configmaps") {
		n.addFindings(health.CheckMovedRecords(records), "")
	}
}
