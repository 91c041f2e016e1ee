package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
)

// Checks selects what Check looks at.
type Checks struct {
	Areas   []string      // inventory.AreaAddresses and so on; nil means all
	Grace   time.Duration // for which a claim may wait, a deletion or a rollout may last, before it is a finding
	Version string        // of the program, which is compared with that of the manager
	Create  bool          // try a create by a dry run, which reserves nothing
}

// Check lists the defects of an Inventory, and reads what else shows defects: Clusters, Nodes, Services, and the installation.
func Check(ctx context.Context, o Options, i *inventory.Inventory, checks Checks) (inventory.Health, error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return inventory.Health{}, err
	}
	c := &checker{Options: o, Checks: checks, client: client, inventory: i}
	for _, resource := range slices.Sorted(maps.Keys(i.LeftOut())) {
		what := resource
		if namespace := i.LeftOut()[resource]; namespace != "" {
			what += " outside of namespace " + namespace
		}
		c.leaveOut(what, "forbidden")
	}
	c.add(i.Check(checks.Grace)...)
	if c.wants(inventory.AreaAddresses) {
		c.checkClusters(ctx)
	}
	if c.wants(inventory.AreaPools) {
		c.checkUses(ctx)
		c.checkNetworks(ctx)
		c.checkMovedRecords(ctx)
	}
	if c.wants(inventory.AreaInstallation) {
		c.checkJournal(ctx)
		c.checkWebhooks(ctx)
		c.checkReplicas(ctx)
		if checks.Create {
			c.checkCreate(ctx)
		}
	}
	if err := ctx.Err(); err != nil {
		return inventory.Health{}, err
	}
	inventory.SortFindings(c.Findings)
	return c.Health, nil
}

// checker collects findings.
type checker struct {
	Options
	Checks
	inventory.Health
	client    *rest.RESTClient
	inventory *inventory.Inventory
}

func (c *checker) wants(area string) bool { return len(c.Areas) == 0 || slices.Contains(c.Areas, area) }

// pass adds a line about what has no defect.
func (c *checker) pass(line string) {
	if line != "" {
		c.Passed = append(c.Passed, line)
	}
}

// add adds findings of the wanted areas.
func (c *checker) add(list ...inventory.Finding) {
	for _, f := range list {
		if c.wants(f.Area()) {
			c.Findings = append(c.Findings, f)
		}
	}
}

// leaveOut adds a line about what was not checked.
func (c *checker) leaveOut(what, why string) { c.NotChecked = append(c.NotChecked, what+" ("+why+")") }

// fail adds a line about what could not be read.
func (c *checker) fail(what string, err error) {
	switch {
	case apierrors.IsForbidden(err):
		c.leaveOut(what, "forbidden")
	case apierrors.IsNotFound(err):
		c.leaveOut(what, "not served")
	default:
		c.leaveOut(what, err.Error())
	}
}

// get reads an object. found is false if it is not stored; read is false, with a line about what was not checked, if it could not be read.
func (c *checker) get(ctx context.Context, what string, into any, path ...string) (found, read bool) {
	raw, err := c.client.Get().AbsPath(path...).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		c.fail(what, err)
		return false, false
	}
	return err == nil, true
}

// listOf reads a list page by page. It returns false, with a line about what was not checked, if the list could not be read.
func listOf[T any](ctx context.Context, c *checker, what, selector string, each func(T), path ...string) bool {
	next := ""
	for {
		raw, err := c.client.Get().AbsPath(path...).Param("labelSelector", selector).Param("limit", fmt.Sprint(pageSize)).Param("continue", next).Do(ctx).Raw()
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil {
			c.fail(what, err)
			return false
		}
		for _, item := range page.Items {
			each(item)
		}
		if next = page.Metadata.Continue; next == "" {
			return true
		}
	}
}

// collect adds the items of a list to a slice.
func collect[T any](into *[]T) func(T) { return func(item T) { *into = append(*into, item) } }

func (c *checker) checkClusters(ctx context.Context) {
	if len(c.inventory.Clusters()) == 0 {
		return
	}
	stored := map[string]bool{}
	each := func(o metav1.PartialObjectMetadata) { stored[o.Namespace+"/"+o.Name] = true }
	if listOf(ctx, c, "Clusters", "", each, "apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version, "clusters") {
		c.add(c.inventory.CheckClusters(stored, c.Grace)...)
	}
}

// checkUses checks the addresses of Nodes and of Services of type LoadBalancer.
func (c *checker) checkUses(ctx context.Context) {
	var uses []inventory.Use
	var networks []inventory.Network
	use := func(address, by string) {
		if r, err := allocator.ParseRange(address); err == nil && r.First == r.Last {
			uses = append(uses, inventory.Use{Address: r, By: by})
		}
	}
	listOf(ctx, c, "Nodes", "", func(n corev1.Node) {
		for _, a := range n.Status.Addresses {
			if _, err := netip.ParseAddr(a.Address); err == nil { // not a host name
				use(a.Address, "Node "+n.Name)
			}
		}
		for _, cidr := range n.Spec.PodCIDRs {
			if r, err := allocator.ParseRange(cidr); err == nil {
				networks = append(networks, inventory.Network{Name: "the Pods of Node " + n.Name, Range: r})
			}
		}
	}, "api", "v1", "nodes")
	listOf(ctx, c, "Services", "", func(s corev1.Service) {
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			use(ingress.IP, "Service "+s.Namespace+"/"+s.Name)
		}
	}, "api", "v1", "services")
	c.add(c.inventory.CheckUses(uses)...)
	c.add(c.inventory.CheckNetworks(networks)...)
}

func (c *checker) checkNetworks(ctx context.Context) {
	var networks []inventory.Network
	listOf(ctx, c, "ServiceCIDRs", "", func(s networkingv1.ServiceCIDR) {
		for _, cidr := range s.Spec.CIDRs {
			if r, err := allocator.ParseRange(cidr); err == nil {
				networks = append(networks, inventory.Network{Name: "the Services", Range: r})
			}
		}
	}, "apis", "networking.k8s.io", "v1", "servicecidrs")
	c.add(c.inventory.CheckNetworks(networks)...)
}

func (c *checker) checkMovedRecords(ctx context.Context) {
	var records []corev1.ConfigMap
	if listOf(ctx, c, "records of moved ranges", poolrecord.LabelMoved, collect(&records), "api", "v1", "namespaces", c.ManagerNamespace, "configmaps") {
		c.add(inventory.CheckMovedRecords(records)...)
	}
}
