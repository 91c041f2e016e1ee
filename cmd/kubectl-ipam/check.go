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
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/report"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// defaultGrace is longer than what the manager needs, also after a failure: it deletes an address object without claim after ten minutes.
	defaultGrace = 10 * time.Minute
	// journalPoll is the interval at which the journal is read again until it has been renewed.
	journalPoll = 500 * time.Millisecond
	// maxCreates bounds the namespaces in which the right to create a claim is looked for.
	maxCreates = 10
)

// checkAreas has the area of the defects of each value of --only.
var checkAreas = map[string]string{
	"addresses": inventory.AreaAddresses, "pools": inventory.AreaPools, "capacity": inventory.AreaCapacity, "installation": inventory.AreaInstallation,
}

// findingItem is a finding in the output.
type findingItem struct {
	ID       string             `json:"id"`
	Severity inventory.Severity `json:"severity"`
	Title    string             `json:"title"`
	Objects  []*report.Object   `json:"objects,omitempty"`
	Message  string             `json:"message"`
	Remedy   string             `json:"remedy"`
}

// checkItem is the output of check.
type checkItem struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Passed     []string      `json:"passed"`
	Findings   []findingItem `json:"findings"`
	NotChecked []string      `json:"notChecked"`
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

// checkJournal reads the journal, again if needed, until it has been renewed: the clocks of this machine and of the leader may differ.
func (c *checker) checkJournal(ctx context.Context) {
	path := []string{"apis", "coordination.k8s.io", "v1", "namespaces", c.managerNamespace, "leases", journal.LeaseName}
	var first, last *coordinationv1.Lease
	renewed := false
	for begun := time.Now(); !renewed; {
		lease := &coordinationv1.Lease{}
		found, read := c.get(ctx, "the journal", lease, path...)
		if !read {
			return
		}
		if last = lease; !found {
			last = nil
			break
		}
		if first == nil {
			first = lease
		}
		leader, age := ptr.Deref(lease.Spec.HolderIdentity, ""), c.now().Sub(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time)
		renewed = leader != "" && (lease.ResourceVersion != first.ResourceVersion || age.Abs() < inventory.JournalRenewal/2)
		if time.Since(begun) > inventory.JournalRenewal {
			break
		}
		if !renewed {
			select {
			case <-ctx.Done():
				return
			case <-time.After(journalPoll):
			}
		}
	}
	list, passed := c.inventory.CheckJournal(c.managerNamespace, last, renewed)
	c.add(list...)
	c.pass(passed)
}

func (c *checker) checkWebhooks(ctx context.Context) {
	var mutating []admissionv1.MutatingWebhookConfiguration
	var validating []admissionv1.ValidatingWebhookConfiguration
	group := []string{"apis", "admissionregistration.k8s.io", "v1"}
	if !listOf(ctx, c, "mutating webhooks", "", collect(&mutating), append(group, "mutatingwebhookconfigurations")...) ||
		!listOf(ctx, c, "validating webhooks", "", collect(&validating), append(group, "validatingwebhookconfigurations")...) {
		return
	}
	hooks := inventory.SelectWebhooks(mutating, validating)
	missing := c.inventory.CheckWebhooks(hooks)
	if c.add(missing...); len(missing) == 0 {
		n, m := hooks.Len()
		c.pass(fmt.Sprintf("webhooks: %d mutating, %d validating", n, m))
	}
	list, passed := c.inventory.CheckCertificates(hooks, c.readCertificate(ctx))
	c.add(list...)
	c.pass(passed)
	for _, name := range hooks.Services() {
		c.checkEndpoints(ctx, name)
	}
}

// readCertificate reads the certificate that the manager serves: the Secret has the name that the Deployment of the manager has. It returns nil if the
// certificate is not known.
func (c *checker) readCertificate(ctx context.Context) []byte {
	const what = "the certificate of the manager"
	var deployments []appsv1.Deployment
	if !listOf(ctx, c, "the Deployment of the manager", inventory.LabelManager, collect(&deployments), "apis", "apps", "v1", "namespaces", c.managerNamespace, "deployments") {
		c.leaveOut(what, "its Secret is not known")
		return nil
	}
	for n := range deployments {
		c.add(inventory.CheckPlugin(version, &deployments[n])...)
		name := inventory.CertificateSecret(&deployments[n])
		if name == "" {
			continue
		}
		var secret corev1.Secret
		if found, read := c.get(ctx, what, &secret, "api", "v1", "namespaces", c.managerNamespace, "secrets", name); !found {
			if read {
				c.leaveOut(what, "there is no Secret "+name)
			}
			return nil
		}
		return secret.Data[corev1.TLSCertKey]
	}
	c.leaveOut(what, "no Deployment of the manager names its Secret")
	return nil
}

func (c *checker) checkEndpoints(ctx context.Context, name admissionv1.ServiceReference) {
	what := "endpoints of Service " + name.Namespace + "/" + name.Name
	service := &corev1.Service{}
	found, read := c.get(ctx, what, service, "api", "v1", "namespaces", name.Namespace, "services", name.Name)
	if !read {
		return
	}
	var endpoints []discoveryv1.EndpointSlice
	if !found {
		service = nil
	} else if !listOf(ctx, c, what, discoveryv1.LabelServiceName+"="+name.Name, collect(&endpoints), "apis", "discovery.k8s.io", "v1", "namespaces", name.Namespace, "endpointslices") {
		return
	}
	list, passed := inventory.CheckEndpoints(name, service, endpoints)
	c.add(list...)
	c.pass(passed)
}

func (c *checker) checkReplicas(ctx context.Context) {
	var pods []corev1.Pod
	if listOf(ctx, c, "Pods of the manager", inventory.LabelManager, collect(&pods), "api", "v1", "namespaces", c.managerNamespace, "pods") {
		c.add(c.inventory.CheckReplicas(c.managerNamespace, pods, c.grace)...)
	}
}

// checkCreate tries the create of an IPAllocation by a dry run, which reserves nothing.
func (c *checker) checkCreate(ctx context.Context) {
	forbidden := map[string]bool{} // by namespace
	for _, p := range c.inventory.Pools() {
		if p.Key.Resource != butler.ResourceNetworkPool || p.Fault != "" || p.Deleting || p.Paused || c.inventory.Usage(p.Key).Available == 0 || forbidden[p.Key.Namespace] {
			continue
		}
		if len(forbidden) == maxCreates {
			break
		}
		if !may(ctx, c.client, "create", butler.ResourceIPAllocation, p.Key.Namespace, "") {
			forbidden[p.Key.Namespace] = true
			continue
		}
		begun := time.Now()
		switch answered, err := c.tryCreate(ctx, p); {
		case err != nil || !answered:
			c.add(inventory.NewCreateFinding(p.Key, err))
		default:
			c.pass(fmt.Sprintf("a dry-run create in %s was answered in %s", inventory.NameOf(p.Key), time.Since(begun).Round(time.Millisecond)))
		}
		return
	}
	if len(forbidden) > 0 {
		c.leaveOut("a create", "forbidden")
	} else {
		c.leaveOut("a create", "no NetworkPool has free addresses")
	}
}

// tryCreate reports whether the response to a dry-run create in a NetworkPool has an address.
func (c *checker) tryCreate(ctx context.Context, p *inventory.Pool) (answered bool, err error) {
	body, err := json.Marshal(butlerv1.IPAllocation{
		TypeMeta:   metav1.TypeMeta{APIVersion: butlerv1.GroupVersion.String(), Kind: "IPAllocation"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "check-", Namespace: p.Key.Namespace},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: p.Key.Name}, Type: butlerv1.TypeNodes, Count: ptr.To[int32](1),
			TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: p.Key.Namespace, Name: "check"},
		},
	})
	if err != nil {
		return false, err
	}
	raw, err := c.client.Post().AbsPath("apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", p.Key.Namespace, "ipallocations").
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	var answer butlerv1.IPAllocation
	err = json.Unmarshal(raw, &answer)
	return answer.Spec.PinnedRange != nil, err
}

func (c *checker) print() error {
	item := checkItem{
		APIVersion: report.APIVersion, Kind: "Check", Passed: append([]string{}, c.passed...), Findings: []findingItem{}, NotChecked: append([]string{}, c.notChecked...),
	}
	for _, f := range c.findings {
		found := findingItem{ID: f.ID, Severity: f.Severity, Title: f.Title, Message: f.Message, Remedy: f.Remedy}
		for _, k := range f.Objects {
			found.Objects = append(found.Objects, report.NewObject(k))
		}
		item.Findings = append(item.Findings, found)
	}
	var err error
	switch c.output {
	case "json", "yaml":
		err = c.printDocument(item)
	case "csv", "name":
		err = findingList(item.Findings).print(c.app)
	default:
		_, err = fmt.Fprint(c.out, item.text(c.isTerminal(), len(c.inventory.Claims()), len(c.inventory.Pools())))
	}
	if err == nil && len(item.Findings) > 0 {
		return findings{}
	}
	return err
}

// findingList returns findings as a list.
func findingList(items []findingItem) list[findingItem] {
	objects := func(f findingItem) string {
		var names []string
		for _, o := range f.Objects {
			names = append(names, o.String())
		}
		return strings.Join(names, ", ")
	}
	return list[findingItem]{
		kind: "Check", name: func(f findingItem) string { return f.ID }, items: items, empty: "no finding",
		columns: []column[findingItem]{
			{name: "ID", value: func(f findingItem) string { return f.ID }},
			{name: "SEVERITY", value: func(f findingItem) string { return string(f.Severity) }},
			{name: "OBJECTS", value: objects},
			{name: "MESSAGE", value: func(f findingItem) string { return f.Message }},
			{name: "REMEDY", value: func(f findingItem) string { return f.Remedy }},
		},
	}
}

// text formats the output for people. Severities are words too: a terminal may have no colours, and a reader may not see signs.
func (item checkItem) text(terminal bool, claims, pools int) string {
	passed, signs := "ok", map[inventory.Severity]string{inventory.SeverityError: "ERROR", inventory.SeverityWarning: "WARNING"}
	if terminal {
		passed = "✓"
		signs = map[inventory.Severity]string{inventory.SeverityError: "✗ error", inventory.SeverityWarning: "! warning"}
	}
	var text strings.Builder
	for _, line := range item.Passed {
		fmt.Fprintf(&text, "%s %s\n", passed, dashed(line))
	}
	if len(item.Findings) == 0 {
		fmt.Fprintf(&text, "%s no finding: %s and %s checked\n", passed, allocator.Counted(claims, "claim"), allocator.Counted(pools, "pool"))
	}
	for _, f := range item.Findings {
		fmt.Fprintf(&text, "%s %s %s\n    -> %s\n", signs[f.Severity], f.ID, dashed(f.Message), dashed(f.Remedy))
	}
	if len(item.NotChecked) > 0 {
		fmt.Fprintf(&text, "not checked: %s\n", dashed(strings.Join(item.NotChecked, ", ")))
	}
	return text.String()
}
