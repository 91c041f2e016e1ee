package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/exchange"
	"butlerlabs.dev/ipam/allocator/inventory/report"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// fieldManager owns the fields that import writes.
const fieldManager = "kubectl-ipam"

// parallelCreates is how many claims import creates at a time. The manager commits the grants of simultaneous creates together.
const parallelCreates = 8

// importKinds are the values of --as.
var importKinds = map[string]exchange.Kind{
	"allocations": exchange.KindIPAllocation, "reserved": exchange.KindReserved, "preallocations": exchange.KindPreAllocation, "ipclaims": exchange.KindIPClaim,
	"ipaddressclaims": exchange.KindIPAddressClaim, "proxyvips": exchange.KindProxyVIP,
}

// importFlags are the flags of import.
type importFlags struct {
	format, pool, as, purpose, tenantNamespace, manifests string
	columns, tenants, domains                             []string
	skipOutside, apply                                    bool
}

// importItem is the outcome of an import, in the output.
type importItem struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Pool         *report.Object    `json:"pool"`
	Format       string            `json:"format"`
	Rows         int               `json:"rows"`
	Claims       []importedItem    `json:"claims"`
	Reservations []reservationItem `json:"reservations"`
	Present      int               `json:"present"`    // rows whose addresses are in the cluster already
	Duplicates   int               `json:"duplicates"` // rows that repeat others
	LeftOut      []leftOutItem     `json:"leftOut"`
	Conflicts    []conflictItem    `json:"conflicts"`
	Written      bool              `json:"written"` // to the cluster, or as manifests
}

type importedItem struct {
	report.Object
	Ranges []string `json:"ranges"`
	Tenant string   `json:"tenant,omitempty"`
	Rows   []int    `json:"rows"`
}

type reservationItem struct {
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
	Range string `json:"range"`
	Rows  []int  `json:"rows"`
}

type leftOutItem struct {
	Reason string `json:"reason"`
	Rows   []int  `json:"rows"`
}

type conflictItem struct {
	Kind    string `json:"kind"`
	Rows    []int  `json:"rows"`
	Message string `json:"message"`
}

func (a *app) newImport() *cobra.Command {
	var f importFlags
	as := slices.Sorted(maps.Keys(importKinds))
	cmd := &cobra.Command{
		Use: "import FILE --to POOL", Short: "Import the addresses of another address management tool into a pool", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{annotationFindings: "true"},
		Long: `Show what the rows of a file become in a pool, and every conflict of the rows with one another and with the cluster. FILE is a CSV file that another
address management tool has exported, or a file of kubectl ipam export; "-" is the standard input.

Without --as, rows become what the file says, otherwise what the kind of the pool suggests:

  NetworkPool   IPAllocations for rows with a tenant, entries of spec.reserved for others
  IPPool        entries of spec.preAllocations, which no claim gets
  ProxyIPPool   ProxyVIPs

Consecutive addresses of one tenant become one IPAllocation. Names of claims derive from the pool and the range, so that a second import changes nothing.

Without --apply and --manifests, and as long as there is a conflict, the command writes nothing. With --apply it updates the pool first and then creates the
claims. It changes no claim that exists. If it fails, what is done stays, and the next run does the rest. The exit code is 1 if there are conflicts, and 2 if the
command could not look, or could not write.

Here --as is not the flag of kubectl that impersonates a user.`,
		Example: `  kubectl ipam import addresses.csv --to vlan40
  kubectl ipam import addresses.csv --to vlan40 -o wide
  kubectl ipam import addresses.csv --to vlan40 --format netbox --tenant-namespace team-1 --vrf-map red=
  kubectl ipam import addresses.csv --to vlan40 --map Team=tenant --tenant-map Acme=team-1/acme --skip-outside
  kubectl ipam import addresses.csv --to vlan40 --as reserved --manifests out
  kubectl ipam import addresses.csv --to vlan40 --apply`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFile(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.pool, "to", "", "`pool` that gets the addresses, as NAME, NAMESPACE/NAME or KIND/NAMESPACE/NAME")
	flags.StringVar(&f.format, "format", "auto", "`format` of the file: "+strings.Join(exchange.Formats, ", ")+"; auto looks at the header")
	flags.StringArrayVar(&f.columns, "map", nil, "`COLUMN=FIELD`: what a column of the file is: "+strings.Join(exchange.FieldNames, ", "))
	flags.StringVar(&f.as, "as", "", "what all rows become: "+strings.Join(as, ", "))
	flags.StringVar(&f.purpose, "type", "nodes", "`type` of IPAllocations, if the file has none: nodes or loadbalancer")
	flags.StringArrayVar(&f.tenants, "tenant-map", nil, "`TENANT=NAMESPACE/NAME`: a tenant of the file is this tenant; TENANT may be empty, for rows without one")
	flags.StringVar(&f.tenantNamespace, "tenant-namespace", "", "`namespace` of tenants for which the file has only a name")
	flags.StringArrayVar(&f.domains, "vrf-map", nil, "`VRF=DOMAIN`: a VRF of the file is this routing domain; DOMAIN may be empty, for the default routing domain")
	flags.BoolVar(&f.skipOutside, "skip-outside", false, "leave out rows outside the pool, instead of reporting them as conflicts")
	flags.StringVar(&f.manifests, "manifests", "", "write the objects as files for kubectl apply to this empty or new `directory`")
	flags.BoolVar(&f.apply, "apply", false, "write the objects to the cluster")
	cmd.MarkFlagsMutuallyExclusive("manifests", "apply")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("to", a.completePools)
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(exchange.Formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions(as, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) importFile(ctx context.Context, path string, f importFlags) error {
	options := exchange.Options{Type: butlerv1.IPAllocationType(f.purpose), TenantNamespace: f.tenantNamespace, SkipOutside: f.skipOutside}
	if options.As = importKinds[f.as]; options.As == "" && f.as != "" {
		return fmt.Errorf("--as=%s: use one of %s; to impersonate a user use another kubeconfig", f.as, strings.Join(slices.Sorted(maps.Keys(importKinds)), ", "))
	}
	var err error
	mapping := exchange.Mapping{Format: f.format}
	if mapping.Columns, err = parsePairs("map", f.columns); err != nil {
		return err
	}
	if options.Tenants, err = parsePairs("tenant-map", f.tenants); err != nil {
		return err
	}
	if options.Domains, err = parsePairs("vrf-map", f.domains); err != nil {
		return err
	}
	file, err := a.readAddresses(path, mapping)
	if err != nil {
		return err
	}
	i, p, err := a.loadPool(ctx, f.pool)
	if err != nil {
		return err
	}
	plan, err := exchange.NewPlan(i, p, file, options)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	item := newImportItem(file, plan)
	if len(plan.Conflicts) > 0 {
		if err := a.printImport(item, plan, f); err != nil {
			return err
		}
		return findings{}
	}
	switch {
	case plan.Empty():
	case f.manifests != "":
		if err := writeManifests(f.manifests, plan); err != nil {
			return err
		}
		item.Written = true
	case f.apply:
		if err := a.apply(ctx, plan); err != nil {
			return err
		}
		item.Written = true
	}
	return a.printImport(item, plan, f)
}

// parsePairs parses the values KEY=VALUE of a flag. The last sign = separates key and value.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	parsed := map[string]string{}
	for _, pair := range pairs {
		n := strings.LastIndex(pair, "=")
		if n < 0 {
			return nil, fmt.Errorf("--%s=%s: write two texts with = between them", flag, pair)
		}
		parsed[pair[:n]] = pair[n+1:]
	}
	return parsed, nil
}

// readAddresses reads a file, or the standard input.
func (a *app) readAddresses(path string, mapping exchange.Mapping) (*exchange.File, error) {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	file, err := exchange.Read(in, mapping)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

func newImportItem(file *exchange.File, plan *exchange.Plan) importItem {
	item := importItem{
		APIVersion: report.APIVersion, Kind: "Import", Pool: report.NewObject(plan.Pool.Key), Format: file.Format, Rows: plan.Rows, Present: plan.Present, Duplicates: plan.Duplicates,
		Claims: []importedItem{}, Reservations: []reservationItem{}, LeftOut: []leftOutItem{}, Conflicts: []conflictItem{},
	}
	for _, c := range plan.Claims {
		item.Claims = append(item.Claims, importedItem{*report.NewObject(c.Key), report.RangeTexts(c.Ranges), c.Tenant, c.Rows})
	}
	for _, r := range plan.Reservations {
		item.Reservations = append(item.Reservations, reservationItem{string(r.Kind), r.Name, r.Range.Text(), r.Rows})
	}
	for _, l := range plan.LeftOut {
		item.LeftOut = append(item.LeftOut, leftOutItem(l))
	}
	for _, c := range plan.Conflicts {
		item.Conflicts = append(item.Conflicts, conflictItem{string(c.Kind), append([]int{}, c.Rows...), c.Text})
	}
	return item
}

// shownLines is how many objects and rows the table format lists.
const shownLines = 20

func (a *app) printImport(item importItem, plan *exchange.Plan, f importFlags) error {
	if a.output == "json" || a.output == "yaml" {
		return a.printDocument(item)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "read %s (%s): %s\n", allocator.Counted(item.Rows, "row"), item.Format, strings.Join(summarize(item, plan), ", "))
	for _, l := range item.LeftOut {
		fmt.Fprintf(&text, "left out %s: %s\n", rowsText(l.Rows), l.Reason)
	}
	switch {
	case len(item.Conflicts) > 0:
		fmt.Fprintf(&text, "conflicts: %d\n", len(item.Conflicts))
		for _, c := range item.Conflicts {
			where := ""
			if len(c.Rows) > 0 {
				where = rowsText(c.Rows) + ": "
			}
			fmt.Fprintf(&text, "  %s%s\n", where, dashed(c.Message))
		}
		text.WriteString("nothing was written")
		if f.apply || f.manifests != "" {
			text.WriteString(": correct the rows or the cluster first")
		}
		text.WriteString("\n")
	case plan.Empty():
		text.WriteString("no change\n")
	default:
		a.listImported(&text, item)
		switch {
		case f.apply:
			text.WriteString("written to the cluster\n")
		case f.manifests != "":
			fmt.Fprintf(&text, "written to %s: kubectl apply -f %s\n", f.manifests, f.manifests)
		default:
			text.WriteString("nothing was written: use --apply, or --manifests DIRECTORY\n")
		}
	}
	_, err := fmt.Fprint(a.out, text.String())
	return err
}

// summarize counts what the rows become.
func summarize(item importItem, plan *exchange.Plan) (parts []string) {
	counts := plan.Count()
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		part := allocator.Counted(counts[kind], string(kind))
		if tenants := plan.Tenants(kind); tenants > 0 {
			part += " for " + allocator.Counted(tenants, "tenant")
		}
		parts = append(parts, part)
	}
	if n := len(item.Reservations); n > 0 {
		rows := map[int]bool{}
		for _, r := range item.Reservations {
			for _, row := range r.Rows {
				rows[row] = true
			}
		}
		what := map[bool]string{true: "network", false: "preAllocation"}[item.Reservations[0].Kind == string(exchange.KindReserved)]
		parts = append(parts, fmt.Sprintf("%d reserved as %s", len(rows), allocator.Counted(n, what)))
	}
	if item.Present > 0 {
		parts = append(parts, fmt.Sprintf("%d there already", item.Present))
	}
	if item.Duplicates > 0 {
		parts = append(parts, fmt.Sprintf("%d repeated", item.Duplicates))
	}
	if len(parts) == 0 {
		parts = []string{"nothing to import"}
	}
	return parts
}

// listImported lists the claims and reservations: all of them with -o wide.
func (a *app) listImported(text *strings.Builder, item importItem) {
	var lines []string
	for _, r := range item.Reservations {
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", r.Range, strings.ToLower(r.Kind[:1])+r.Kind[1:], r.Name)), " ")+" ("+rowsText(r.Rows)+")")
	}
	for _, c := range item.Claims {
		line := fmt.Sprintf("%s %s %s", strings.Join(c.Ranges, " "), c.Kind, c.Name)
		if c.Tenant != "" {
			line += " for " + c.Tenant
		}
		lines = append(lines, line+" ("+rowsText(c.Rows)+")")
	}
	for n, line := range lines {
		if n == shownLines && a.output != "wide" {
			fmt.Fprintf(text, "  and %d more: -o wide lists all\n", len(lines)-shownLines)
			return
		}
		fmt.Fprintf(text, "  %s\n", dashed(line))
	}
}

// rowsText lists rows, runs of rows as one: "rows 3-7, 12". A long list ends with a count.
func rowsText(rows []int) string {
	var parts []string
	for n := 0; n < len(rows); n++ {
		first := n
		for n+1 < len(rows) && rows[n+1] == rows[n]+1 {
			n++
		}
		switch {
		case len(parts) == shownLines:
			return fmt.Sprintf("rows %s and %d more", strings.Join(parts, ", "), len(rows)-first)
		case n == first:
			parts = append(parts, fmt.Sprint(rows[n]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", rows[first], rows[n]))
		}
	}
	if len(rows) == 1 {
		return "row " + parts[0]
	}
	return "rows " + strings.Join(parts, ", ")
}

// apply writes a plan to the cluster: first the pool, then the claims. The update of the pool is a single write that the webhooks check as a whole, so that a
// reservation that is denied leaves nothing done, and an IPPool keeps an address for a claim before the claim is created.
func (a *app) apply(ctx context.Context, plan *exchange.Plan) error {
	config, err := a.config()
	if err != nil {
		return err
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	pool := inventory.KindOf(plan.Pool.Key) + " " + inventory.NameOf(plan.Pool.Key)
	if plan.Updated != nil {
		if err := updatePool(ctx, client, plan); err != nil {
			return fmt.Errorf("%s was not updated, and no claim was created: %w", pool, err)
		}
	}
	created, err := a.createClaims(ctx, client, plan.Claims)
	if err == nil {
		return nil
	}
	done := fmt.Sprintf("%d of %s created", created, allocator.Counted(len(plan.Claims), "claim"))
	if plan.Updated != nil {
		done = pool + " was updated, and " + done
	}
	return fmt.Errorf("%s; these stay, and the same command does the rest: %w", done, err)
}

// updatePool writes the reservations of a plan. The patch replaces the list, if spec is still the version that the plan was made for. Server-side apply would
// make the plugin the manager of the whole list, which Git or a person may manage; an update would fail after each update of the status.
func updatePool(ctx context.Context, client *rest.RESTClient, plan *exchange.Plan) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	change := operation{Op: "add"}
	switch pool := plan.Updated.(type) {
	case *butlerv1.NetworkPool:
		change.Path, change.Value = "/spec/reserved", pool.Spec.Reserved
	case *metal3v1.IPPool:
		change.Path, change.Value = "/spec/preAllocations", pool.Spec.PreAllocations
	}
	generation := plan.Pool.Object.GetGeneration()
	patch, err := json.Marshal([]operation{{"test", "/metadata/generation", generation}, change})
	if err != nil {
		return err
	}
	path := append(collectionPath(plan.Pool.Key), plan.Pool.Key.Name)
	err = client.Patch(types.JSONPatchType).AbsPath(path...).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
	if err == nil {
		return nil
	}
	if raw, readErr := client.Get().AbsPath(path...).Do(ctx).Raw(); readErr == nil {
		var stored metav1.PartialObjectMetadata
		if json.Unmarshal(raw, &stored) == nil && stored.Generation != generation {
			return errors.New("the pool was changed meanwhile: run the command again")
		}
	}
	return err
}

// collectionPath returns the path of the collection that has an object.
func collectionPath(k inventory.Key) []string {
	plural, group, _ := strings.Cut(k.Resource, ".")
	version := ""
	for _, r := range resources {
		if r.name == k.Resource {
			version = r.version
		}
	}
	path := []string{"apis", group, version}
	if k.Namespace != "" {
		path = append(path, "namespaces", k.Namespace)
	}
	return append(path, plural)
}

// createClaims creates claims, and returns how many were created. It creates instead of applying: an object that somebody else created meanwhile under the same
// name is an error, and not changed.
func (a *app) createClaims(ctx context.Context, client *rest.RESTClient, claims []exchange.Claim) (created int, err error) {
	begun, reported := time.Now(), false
	var mu sync.Mutex
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(parallelCreates)
	for _, c := range claims {
		if creating.Err() != nil {
			break
		}
		group.Go(func() error {
			body, err := json.Marshal(manifestOf(c.Object))
			if err != nil {
				return err
			}
			err = client.Post().AbsPath(collectionPath(c.Key)...).Param("fieldManager", fieldManager).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error() // a create in flight ends, so that the count is exact
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				return fmt.Errorf("%s %s (%s): %w", c.Kind, inventory.NameOf(c.Key), rowsText(c.Rows), err)
			}
			if created++; time.Since(begun) > patience {
				reported = true
				_, _ = fmt.Fprintf(a.err, "\rcreated %d of %d …", created, len(claims))
			}
			return nil
		})
	}
	if err = group.Wait(); err == nil && created < len(claims) {
		err = ctx.Err()
	}
	if reported {
		_, _ = fmt.Fprintln(a.err)
	}
	return created, err
}

// manifestOf returns an object as a person writes it: without status and without what the API server sets.
func manifestOf(o metav1.Object) map[string]any {
	text, err := json.Marshal(o)
	var manifest map[string]any
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return nil
	}
	delete(manifest, "status")
	if meta, ok := manifest["metadata"].(map[string]any); ok {
		for field := range meta {
			if !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, field) {
				delete(meta, field)
			}
		}
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			delete(annotations, butlerv1.AnnotationCooldown)
			if len(annotations) == 0 {
				delete(meta, "annotations")
			}
		}
	}
	return manifest
}

// writeManifests writes the objects of a plan as files. kubectl applies the files of a directory in the order of their names: the pool is the first.
func writeManifests(directory string, plan *exchange.Plan) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	if files, err := os.ReadDir(directory); err != nil || len(files) > 0 {
		return errors.Join(err, fmt.Errorf("--manifests=%s: the directory has files already: name an empty or new directory", directory))
	}
	var claims []map[string]any
	for _, c := range plan.Claims {
		claims = append(claims, manifestOf(c.Object))
	}
	var pools []map[string]any
	if plan.Updated != nil {
		pool := manifestOf(plan.Updated)
		for _, r := range resources {
			if _, group, _ := strings.Cut(r.name, "."); r.name == plan.Pool.Key.Resource {
				pool["apiVersion"], pool["kind"] = group+"/"+r.version, inventory.KindOf(plan.Pool.Key)
			}
		}
		pools = append(pools, pool)
	}
	for name, manifests := range map[string][]map[string]any{"1-pool.yaml": pools, "2-claims.yaml": claims} {
		if len(manifests) == 0 {
			continue
		}
		var all strings.Builder
		for n, manifest := range manifests {
			text, err := yaml.Marshal(manifest)
			if err != nil {
				return err
			}
			if n > 0 {
				all.WriteString("---\n")
			}
			all.Write(text)
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(all.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
