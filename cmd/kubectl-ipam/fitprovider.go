package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	tenantplan "butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// defaultTenantsNamespace is the default of the manager's flag --tenants-namespace.
const defaultTenantsNamespace = "butler-system"

// tenantsNamespace returns the namespace of the ProviderConfigs and NetworkPools of
// tenants.
func (a *app) tenantsNamespace() string {
	return cmp.Or(a.overrides.Context.Namespace, defaultTenantsNamespace)
}

// fitProvider prints how many tenants fit into the NetworkPools of a ProviderConfig.
// tenant contains the ranges of a tenant; nil means the ranges that the manager
// allocates.
func (a *app) fitProvider(ctx context.Context, provider string, tenant []tenantRange) error {
	if a.domainSet {
		return errors.New("--domain and --provider: use one of them; the ProviderConfig names the pools")
	}
	namespace := a.tenantsNamespace()
	of, name, found := strings.Cut(provider, "/")
	if !found {
		of, name = namespace, provider
	}
	if len(validation.IsDNS1123Label(of)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("--provider=%s: write NAME or NAMESPACE/NAME of a ProviderConfig", provider)
	}
	o, err := a.options()
	if err != nil {
		return err
	}
	o.Namespace = namespace
	c, err := cluster.ReadProvider(ctx, o, of, name)
	if err != nil {
		return err
	}
	i, err := cluster.Read(ctx, o, false)
	if err != nil {
		return err
	}
	f, err := newProviderFit(i, c, namespace, tenant)
	if err != nil {
		return err
	}
	return a.printProviderFit(f)
}

// newProviderFit counts the tenants that fit into the NetworkPools of a ProviderConfig.
// namespace is the namespace of the NetworkPools. Order and sizes come from the function
// with which the manager plans the first blocks of a TenantCluster.
func newProviderFit(i *inventory.Inventory, c *butlerv1.ProviderConfig, namespace string, tenant []tenantRange) (report.ProviderFit, error) {
	provider := &report.Object{Kind: "ProviderConfig", Namespace: c.Namespace, Name: c.Name}
	f := report.ProviderFit{APIVersion: report.APIVersion, Kind: report.KindProviderFit, Provider: provider, Next: []report.TenantRange{}, Pools: []report.ProviderPool{}}
	policy := tenantplan.PolicyOf(c)
	if !policy.IPAM {
		return f, fmt.Errorf("%s: spec.network.mode is not %s, so tenants get no addresses from NetworkPools", provider, butlerv1.NetworkModeIPAM)
	}
	pools := map[string]*butlerv1.NetworkPool{}
	for _, name := range policy.Pools {
		if p := i.Pool(butler.NetworkPoolKey(namespace, name)); p != nil {
			pools[name], _ = p.Object.(*butlerv1.NetworkPool)
		}
	}
	blocks, err := initialBlocks(policy, pools, tenant)
	if err != nil {
		return f, fmt.Errorf("%s: %w", provider, err)
	}
	if len(blocks) == 0 {
		return f, fmt.Errorf("%s: a tenant needs no addresses of these sizes", provider)
	}
	vacancies := map[string]*allocator.Vacancy{}
	for name := range pools {
		vacancies[name] = i.Vacancy(i.Pool(butler.NetworkPoolKey(namespace, name)))
	}
	count := tenantplan.CountTenants(blocks, vacancies)
	f.Fits, f.AtLeast = count.Tenants, count.AtLeast
	if count.WaitsFor != "" {
		f.WaitsFor = report.NewObject(butler.NetworkPoolKey(namespace, count.WaitsFor))
	}
	if f.Fits == 0 {
		f.Lacks = string(blocks[len(count.Next)].Kind)
	} else {
		for n, c := range count.Next {
			f.Next = append(f.Next, report.TenantRange{Type: string(blocks[n].Kind), Size: int64(c.Count), Pool: report.NewObject(butler.NetworkPoolKey(namespace, c.Pool))})
		}
	}
	for _, name := range policy.Pools {
		p, err := newProviderPool(i, butler.NetworkPoolKey(namespace, name), blocks)
		if err != nil {
			return f, err
		}
		p.Priority = priorityOf(c, name)
		f.Pools = append(f.Pools, p)
	}
	return f, nil
}

// initialBlocks returns the blocks that the manager allocates for a new TenantCluster, in
// the order of allocation. If tenant is not empty, its sizes replace the sizes of the
// policy, and only its types are returned.
func initialBlocks(policy tenantplan.Policy, pools map[string]*butlerv1.NetworkPool, tenant []tenantRange) ([]tenantplan.MissingBlock, error) {
	sizes := map[butlerv1.IPAllocationType]int32{}
	for _, r := range tenant {
		sizes[butlerv1.IPAllocationType(r.purpose)] = int32(r.size)
	}
	if sizes[butlerv1.TypeNodes] > 0 && !policy.Nodes {
		return nil, fmt.Errorf("nodes get their addresses elsewhere (annotation %s): omit nodes in --tenant", butlerv1.AnnotationNodeAddresses)
	}
	blocks := tenantplan.MissingBlocks(tenantplan.Tenant{Ingress: true, LBPoolSize: sizes[butlerv1.TypeLoadBalancer]}, policy, nil, pools)
	if len(tenant) == 0 {
		return blocks, nil
	}
	for _, b := range blocks {
		for n := range b.Candidates {
			if b.Kind == butlerv1.TypeNodes {
				b.Candidates[n].Count = min(sizes[b.Kind], policy.MaxNodes)
			}
		}
	}
	return slices.DeleteFunc(blocks, func(b tenantplan.MissingBlock) bool { return sizes[b.Kind] == 0 }), nil
}

// newProviderPool returns a pool of a ProviderConfig with the number of tenants that fit
// without the other pools.
func newProviderPool(i *inventory.Inventory, k inventory.Key, blocks []tenantplan.MissingBlock) (report.ProviderPool, error) {
	item := report.ProviderPool{Object: *report.NewObject(k), Sizes: map[string]int64{}, FitsText: "0"}
	p := i.Pool(k)
	if p == nil {
		item.Note = "does not exist, or you may not read it"
		return item, nil
	}
	item.SetNumbers(i, k)
	var sizes []int64
	for _, b := range blocks {
		for _, candidate := range b.Candidates {
			if candidate.Pool == k.Name {
				item.Sizes[string(b.Kind)] = int64(candidate.Count)
				sizes = append(sizes, int64(candidate.Count))
			}
		}
	}
	switch {
	case p.Deleting:
		item.Note = "is being deleted"
	case p.Paused:
		item.Note = "is paused: tenants wait for it"
	case p.Fault != "":
		item.Note = "offers nothing: " + p.Fault
	default:
		item.Note = i.NoteOfHiddenOwners(p)
	}
	if !p.Serves() || len(sizes) == 0 {
		return item, nil
	}
	fit, err := i.Fits(p, sizes)
	item.Fits, item.AtLeast, item.FitsText = fit.Sets, fit.AtLeast, fit.Text()
	return item, err
}

// priorityOf returns the priority of a pool of a ProviderConfig: the lowest number, if
// the ProviderConfig names the pool several times.
func priorityOf(c *butlerv1.ProviderConfig, pool string) int32 {
	var numbers []int32
	for _, ref := range c.Spec.Network.PoolRefs {
		if ref.Name == pool {
			numbers = append(numbers, ptr.Deref(ref.Priority, 0))
		}
	}
	return slices.Min(numbers)
}

func (a *app) printProviderFit(f report.ProviderFit) error {
	err := error(nil)
	if a.output == "json" || a.output == "yaml" {
		err = a.printDocument(f)
	} else {
		err = providerPools(f).print(a)
	}
	if err == nil && (a.output == "table" || a.output == "wide") {
		_, err = fmt.Fprintln(a.out, explainProviderFit(f))
	}
	if err == nil && f.Fits == 0 {
		return findings{}
	}
	return err
}

func providerPools(f report.ProviderFit) list[report.ProviderPool] {
	return list[report.ProviderPool]{
		kind: f.Kind, items: f.Pools, empty: "the ProviderConfig names no NetworkPool: add one to spec.network.poolRefs",
		name: func(p report.ProviderPool) string { return kubectlName(p.Object) },
		columns: []column[report.ProviderPool]{
			{"POOL", false, func(p report.ProviderPool) string { return p.Namespace + "/" + p.Name }},
			{"PRIORITY", false, func(p report.ProviderPool) string { return fmt.Sprint(p.Priority) }},
			{"FREE", false, func(p report.ProviderPool) string { return allocator.Amount(p.Free, p.Exact.Available) }},
			{"LARGEST", true, func(p report.ProviderPool) string { return allocator.Amount(p.LargestFree, p.Exact.LargestFree) }},
			{"TENANT", false, func(p report.ProviderPool) string { return sizesText(p.Sizes) }},
			{"FITS", false, func(p report.ProviderPool) string { return p.FitsText }},
			{"NOTE", false, func(p report.ProviderPool) string { return p.Note }},
		},
		csv: []csvColumn[report.ProviderPool]{
			{name: "FREE", value: func(p report.ProviderPool) string { _, _, free, _ := p.Exact.Decimals(); return free }},
			{name: "LARGEST", value: func(p report.ProviderPool) string { _, _, _, largest := p.Exact.Decimals(); return largest }},
			{name: "FITS", value: func(p report.ProviderPool) string { return fmt.Sprint(p.Fits) }},
		},
	}
}

// sizesText returns the sizes of a tenant in the syntax of --tenant.
func sizesText(sizes map[string]int64) string {
	var parts []string
	for _, purpose := range []inventory.Purpose{inventory.PurposeNodes, inventory.PurposeLoadBalancer} {
		if size, some := sizes[string(purpose)]; some {
			parts = append(parts, fmt.Sprintf("%s=%d", purpose, size))
		}
	}
	return strings.Join(parts, ",")
}

// manyFit is the number from which tenants that fit are counted as a power of two.
const manyFit = 1 << 53

// explainProviderFit returns a sentence with the number of tenants that fit, and the
// pools of the next tenant.
func explainProviderFit(f report.ProviderFit) string {
	switch {
	case f.Fits == 0 && f.WaitsFor != nil:
		return fmt.Sprintf("none fits: the next tenant waits for addresses for %s of %s", f.Lacks, f.WaitsFor)
	case f.Fits == 0:
		return fmt.Sprintf("none fits: no pool has room for %s", f.Lacks)
	}
	count := allocator.Counted(f.Fits, "more tenant")
	switch {
	case f.Fits >= manyFit:
		count = allocator.About(float64(f.Fits)) + " more tenants"
	case f.AtLeast:
		count = "at least " + count
	}
	text := fmt.Sprintf("%s %s; the next tenant gets addresses of %s", count, allocator.Agree(f.Fits, "fits", "fit"), f.Next[0].Pool)
	if len(f.Next) == 2 && *f.Next[0].Pool != *f.Next[1].Pool {
		text += fmt.Sprintf(" for %s, and of %s for %s", f.Next[0].Type, f.Next[1].Pool, f.Next[1].Type)
	}
	if f.WaitsFor != nil {
		text += fmt.Sprintf("; then tenants wait for %s", f.WaitsFor)
	}
	return text
}
