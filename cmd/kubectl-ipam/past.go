package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
)

// tenureItem is a claim that owned addresses, in the output.
type tenureItem struct {
	objectItem
	Tenant        string     `json:"tenant,omitempty"`
	Pool          string     `json:"pool,omitempty"` // kind/namespace/name
	RoutingDomain string     `json:"routingDomain,omitempty"`
	Ranges        []string   `json:"ranges"`
	UID           string     `json:"uid"`
	From          *time.Time `json:"from,omitempty"`  // absent if the log begins later
	Until         *time.Time `json:"until,omitempty"` // absent if the log has no release
}

// past prints who owned addresses, as the log of the manager says: at a time, or at any time.
func (a *app) past(argument, log, at string) error {
	r, err := allocator.ParseRange(argument)
	if err != nil {
		return fmt.Errorf("--log answers for an address, a range or a network: %w", err)
	}
	var when time.Time
	if at != "" {
		if when, err = time.Parse(time.RFC3339, at); err != nil {
			return fmt.Errorf("--at=%s: write a time as 2026-11-24T15:00:00Z", at)
		}
	}
	in := a.in
	if log != "-" {
		file, err := os.Open(log)
		if err != nil {
			return err
		}
		defer file.Close() //nolint:errcheck // only read
		in = file
	}
	history, err := inventory.ReadHistory(io.Reader(in))
	if err != nil {
		return fmt.Errorf("%s: %w", log, err)
	}
	if len(history) == 0 {
		return fmt.Errorf("%s has no line of the logger %q with an allocation or a release: is it the log of the manager, as JSON?", log, inventory.HistoryLogger)
	}
	l := list[tenureItem]{
		kind: "TenureList", empty: fmt.Sprintf("no owner of %s in the log", argument), name: func(t tenureItem) string { return strings.ToLower(t.Kind) + "/" + t.Name },
		columns: []column[tenureItem]{
			{"FROM", false, func(t tenureItem) string { return timeText(t.From) }},
			{"UNTIL", false, func(t tenureItem) string { return timeText(t.Until) }},
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
				objectItem{tenure.Kind, tenure.Namespace, tenure.Name}, tenure.Tenant, tenure.Pool, domain, rangeTexts(tenure.Ranges), tenure.UID,
				optionalTime(tenure.From), optionalTime(tenure.Until),
			})
		}
	}
	slices.SortStableFunc(l.items, func(x, y tenureItem) int { return cmp.Compare(timeText(x.From), timeText(y.From)) })
	return l.print(a)
}
