package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
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

const (
	// defaultGrace is longer than what the manager needs, also after a failure: it deletes an address object without claim after ten minutes.
	defaultGrace = 10 * time.Minute
)

// checkAreas has the area of the defects of each value of --only.
var checkAreas = map[string]string{
	"addresses": inventory.AreaAddresses, "pools": inventory.AreaPools, "capacity": inventory.AreaCapacity, "installation": inventory.AreaInstallation,
}

func (a *app) newCheck() *cobra.Command {
	var only []string
	var grace time.Duration
	areas := slices.Sorted(maps.Keys(checkAreas))
	cmd := &cobra.Command{
		Use: "check", Short: "Look for defects, with a remedy for each", Args: cobra.NoArgs, Annotations: map[string]string{annotationFindings: "true"},
		Long: `Look for defects, and name a remedy for each:

  addresses     claims in conflict, waiting, not ready or stuck; address objects without claim
  pools         pools that overlap each other, the cluster or its Nodes; pools and records with faults
  capacity      pools that are full or fragmented
  installation  leader, journal and its grants, webhooks, certificates, endpoints, versions; a create by a dry run, with its duration

The command reads API objects only, and changes nothing: the dry run reserves no address. Each finding has an identifier, which the README
of this command explains. What you may not read is listed as not checked. The exit code is 0 without findings, 1 with findings, and 2 if
the command could not look.`,
		Example: `  kubectl ipam check
  kubectl ipam check --only addresses,pools
  kubectl ipam check --only capacity -o json
  kubectl ipam check --grace 1m
  kubectl ipam check --only installation --manager-namespace butler-ipam-system`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, area := range only {
				if checkAreas[area] == "" {
					return fmt.Errorf("--only=%s: use %s", area, strings.Join(areas, ", "))
				}
			}
			if grace < 0 {
				return fmt.Errorf("--grace=%s: must not be negative", grace)
			}
			return a.check(cmd.Context(), only, grace)
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these `areas`: "+strings.Join(areas, ", "))
	cmd.Flags().DurationVar(&grace, "grace", defaultGrace, "`duration` for which a claim may wait, a deletion or a rollout may last, before it is a finding")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(areas, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) check(ctx context.Context, only []string, grace time.Duration) error {
	c, err := a.runChecks(ctx, only, grace)
	if err != nil {
		return err
	}
	return c.print()
}

// runChecks runs the checks of areas; nil means all.
func (a *app) runChecks(ctx context.Context, only []string, grace time.Duration) (*checker, error) {
	a.quiet = true
	i, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &checker{app: a, client: client, inventory: i, grace: grace, only: only}
	for _, resource := range slices.Sorted(maps.Keys(i.LeftOut())) {
		what := resource
		if namespace := i.LeftOut()[resource]; namespace != "" {
			what += " outside of namespace " + namespace
		}
		c.leaveOut(what, "forbidden")
	}
	c.add(i.Check(grace)...)
	if c.wants("addresses") {
		c.checkClusters(ctx)
	}
	if c.wants("pools") {
		c.checkUses(ctx)
		c.checkNetworks(ctx)
		c.checkMovedRecords(ctx)
	}
	if c.wants("installation") {
		c.checkJournal(ctx)
		c.checkWebhooks(ctx)
		c.checkReplicas(ctx)
		c.checkCreate(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inventory.SortFindings(c.findings)
	return c, nil
}

// checker collects findings.
type checker struct {
	*app
	client     *rest.RESTClient
	inventory  *inventory.Inventory
	grace      time.Duration
	only       []string
	passed     []string
	findings   []inventory.Finding
	notChecked []string
}

func (c *checker) wants(area string) bool { return len(c.only) == 0 || slices.Contains(c.only, area) }

// pass adds a line about what has no defect.
func (c *checker) pass(line string) {
	if line != "" {
		c.passed = append(c.passed, line)
	}
}

// add adds findings of the wanted areas.
func (c *checker) add(list ...inventory.Finding) {
	for _, f := range list {
		for name, area := range checkAreas {
			if f.Area() == area && c.wants(name) {
				c.findings = append(c.findings, f)
			}
		}
	}
}

// leaveOut adds a line about what was not checked.
func (c *checker) leaveOut(what, why string) { c.notChecked = append(c.notChecked, what+" ("+why+")") }

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
		c.add(c.inventory.CheckClusters(stored, c.grace)...)
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
	if listOf(ctx, c, "records of moved ranges", poolrecord.LabelMoved, collect(&records), "api", "v1", "namespaces", c.managerNamespace, "configmaps") {
		c.add(inventory.CheckMovedRecords(records)...)
	}
}
