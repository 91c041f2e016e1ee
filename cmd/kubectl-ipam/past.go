package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/historyrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// tenureItem is a period in which a claim owned addresses, in the output.
type tenureItem struct {
	report.Object
	Tenant        string     `json:"tenant,omitempty"`
	Pool          string     `json:"pool,omitempty"` // kind/namespace/name
	RoutingDomain string     `json:"routingDomain,omitempty"`
	Ranges        []string   `json:"ranges"`
	UID           string     `json:"uid"`
	From          *time.Time `json:"from,omitempty"`  // absent if the history begins after the allocation
	Until         *time.Time `json:"until,omitempty"` // absent if the history has no release
}

// past prints the owners of addresses from the log of the manager or from
// AllocationHistories: the owners at a time (historyrecord.ParsePeriod), or with at ""
// the owners in the whole history.
func (a *app) past(ctx context.Context, argument, log, at string) error {
	r, err := allocator.ParseRange(argument)
	if err != nil {
		return fmt.Errorf("--at and --log answer for an address, a range or a network: %w", err)
	}
	var when historyrecord.Period
	if at != "" {
		if when, err = historyrecord.ParsePeriod(at, a.now()); err != nil {
			return fmt.Errorf(`--at=%s: write a time as 2026-11-24T15:00:00Z or "2026-11-24 15:00" (UTC), or a duration before now as 90m`, at)
		}
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			_, _ = fmt.Fprintf(a.err, "--at is %s, until %s\n", when.Begin.Format(time.RFC3339), when.End.Format(time.RFC3339))
		}
	}
	var history historyrecord.History
	if log != "" {
		history, err = a.readLog(log)
	} else {
		history, err = a.readHistoryObjects(ctx, when.Begin)
	}
	if err != nil {
		return err
	}
	l := list[tenureItem]{
		kind: "TenureList", empty: fmt.Sprintf("no owner of %s in the history", argument), name: func(t tenureItem) string { return kubectlName(t.Object) },
		columns: []column[tenureItem]{
			{"FROM", false, func(t tenureItem) string { return report.TimeText(t.From) }},
			{"UNTIL", false, func(t tenureItem) string { return report.TimeText(t.Until) }},
			{"OWNER", false, func(t tenureItem) string { return t.String() }},
			{"TENANT", false, func(t tenureItem) string { return t.Tenant }},
			{"ADDRESSES", false, func(t tenureItem) string { return strings.Join(t.Ranges, ",") }},
			{"POOL", false, func(t tenureItem) string { return t.Pool }},
			{"DOMAIN", false, func(t tenureItem) string { return t.RoutingDomain }},
			{"UID", true, func(t tenureItem) string { return t.UID }},
		},
	}
	for _, domain := range history.Domains() {
		if !a.inDomain(domain) {
			continue
		}
		for _, tenure := range history.Owners(domain, r, when) {
			l.items = append(l.items, tenureItem{
				report.Object{Kind: tenure.Kind, Namespace: tenure.Namespace, Name: tenure.Name}, tenure.Tenant, tenure.Pool, domain, report.RangeTexts(tenure.Ranges), tenure.UID,
				report.OptionalTime(tenure.From), report.OptionalTime(tenure.Until),
			})
		}
	}
	slices.SortStableFunc(l.items, func(x, y tenureItem) int { return cmp.Compare(report.TimeText(x.From), report.TimeText(y.From)) })
	return l.print(a)
}

// readLog reads a history from a log file, or from standard input.
func (a *app) readLog(log string) (historyrecord.History, error) {
	in := a.in
	if log != "-" {
		file, err := os.Open(log)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // only read
		in = file
	}
	history, err := historyrecord.ReadLog(io.Reader(in))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", log, err)
	}
	if len(history) == 0 {
		return nil, fmt.Errorf("%s has no line of the logger %q with an allocation or a release: is it the log of the manager, as JSON?", log, historyrecord.Logger)
	}
	return history, nil
}

// historyPage is the number of AllocationHistories in a page of a list. An
// AllocationHistory has up to 90 kB.
const historyPage = 20

// readHistoryObjects reads a history from AllocationHistories. It adds the allocations of
// stored claims that are older than the AllocationHistories.
func (a *app) readHistoryObjects(ctx context.Context, when time.Time) (historyrecord.History, error) {
	objects, err := a.listHistoryObjects(ctx)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("namespace %s has no AllocationHistory: store the history with history.retentionDays of the chart, or give the log of the manager with --log", a.managerNamespace)
	}
	first := slices.MinFunc(objects, func(x, y butlerv1.AllocationHistory) int { return cmp.Compare(x.Spec.Day, y.Spec.Day) }).Spec.Day
	if day, err := time.Parse(time.DateOnly, first); err == nil && when.Before(day) {
		a.warn("the AllocationHistories begin on %s: claims that were gone by then are not shown", first)
	}
	var records []historyrecord.Record
	for n := range objects {
		o := &objects[n]
		more, err := historyrecord.ReadObject(o)
		if err != nil {
			a.warn("%v", err)
		}
		if o.Spec.Incomplete {
			a.warn("AllocationHistory %s has no room for all records of %s on %s: the log of the manager has them", o.Name, o.Spec.Pool, o.Spec.Day)
		}
		records = append(records, more...)
	}
	if i, err := a.load(ctx); err != nil {
		a.warn("stored claims that are older than the AllocationHistories are not shown: %v", err)
	} else {
		records = append(records, missingAllocations(i, records)...)
	}
	return historyrecord.NewHistory(records), nil
}

// listHistoryObjects lists the AllocationHistories of the manager's namespace; none if
// the API is not installed.
func (a *app) listHistoryObjects(ctx context.Context) (objects []butlerv1.AllocationHistory, err error) {
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	path := []string{"apis", butlerv1.GroupVersion.Group, butlerv1.GroupVersion.Version, "namespaces", a.managerNamespace, "allocationhistories"}
	next, p := "", newProgress(a.raw.err, time.Now)
	text := func() string { return fmt.Sprintf("read %d AllocationHistories", len(objects)) }
	for {
		raw, err := client.Get().AbsPath(path...).Param("limit", fmt.Sprint(historyPage)).Param("continue", next).Do(ctx).Raw()
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsResourceExpired(err) && next != "": // the continue token expires when etcd compacts the version of the list
			objects, next = nil, ""
			continue
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("you may not list allocationhistories in namespace %s: give the log of the manager with --log, or get the role butler-ipam-viewer there", a.managerNamespace)
		case err != nil:
			return nil, fmt.Errorf("list allocationhistories: %w", err)
		}
		var page butlerv1.AllocationHistoryList
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("page of allocationhistories: %w", err)
		}
		objects = append(objects, page.Items...)
		p.step(len(objects), 0, text())
		if next = page.Continue; next == "" {
			p.end(text())
			return objects, nil
		}
	}
}

// missingAllocations returns an allocation for each stored claim that is Ready or being
// deleted and has ranges, if the records lack the allocation because it is older. The
// time of the allocation is inventory.Claim.Since.
func missingAllocations(i *inventory.Inventory, records []historyrecord.Record) (missing []historyrecord.Record) {
	recorded := map[string]bool{}
	for _, r := range records {
		recorded[r.UID] = recorded[r.UID] || r.Event == historyrecord.EventAllocated
	}
	for _, c := range i.Claims() {
		if recorded[c.UID] || len(c.Ranges) == 0 || c.State != inventory.ClaimReady && c.State != inventory.ClaimDeleting {
			continue
		}
		r := historyrecord.Record{
			Event: historyrecord.EventAllocated, Time: c.Since, Kind: inventory.KindOf(c.Key), Namespace: c.Key.Namespace, Name: c.Key.Name, UID: c.UID, RoutingDomain: c.Domain, Ranges: c.Ranges,
			Tenant: c.Tenant, Origin: c.Origin,
		}
		if p := i.Pool(c.Pool); p != nil && !c.DomainGranted {
			r.RoutingDomain = p.Domain
		}
		if c.Pool != (inventory.Key{}) {
			r.Pool = historyrecord.PoolName(c.Pool)
		}
		missing = append(missing, r)
	}
	return missing
}
