package main

import (
	"fmt"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// maxOfKind bounds the findings of a kind in the table format: hundreds of claims may
// wait for a missing pool.
const maxOfKind = 10

// printHealth prints the outcome of a check in the format of the flags.
func (a *app) printHealth(h health.Report, i *inventory.Inventory) error {
	item := report.NewHealth(h)
	var err error
	switch a.output {
	case "json", "yaml":
		err = a.printDocument(item)
	case "csv", "name":
		err = findingList(item.Findings).print(a)
	default:
		claims := slices.DeleteFunc(i.Claims(), func(c *inventory.Claim) bool { return !a.selects(c.Key, c.Domain) })
		pools := slices.DeleteFunc(i.Pools(), func(p *inventory.Pool) bool { return !a.selects(p.Key, p.Domain) })
		_, err = fmt.Fprint(a.out, healthText(item, a.isTerminal(), len(claims), len(pools)))
	}
	if err == nil && len(item.Findings) > 0 {
		return findings{}
	}
	return err
}

// findingList returns findings as a list.
func findingList(items []report.Finding) list[report.Finding] {
	objects := func(f report.Finding) string {
		var names []string
		for _, o := range f.Objects {
			names = append(names, o.String())
		}
		return strings.Join(names, ", ")
	}
	return list[report.Finding]{
		kind: "Check", name: func(f report.Finding) string { return f.ID }, items: items, empty: "no finding",
		columns: []column[report.Finding]{
			{name: "ID", value: func(f report.Finding) string { return f.ID }},
			{name: "SEVERITY", value: func(f report.Finding) string { return string(f.Severity) }},
			{name: "OBJECTS", value: objects},
			{name: "MESSAGE", value: func(f report.Finding) string { return f.Message }},
			{name: "REMEDY", value: func(f report.Finding) string { return f.Remedy }},
		},
	}
}

// healthText formats the outcome of a check as text. Severities are words in addition to
// signs: a terminal may have no colours, and a screen reader may omit signs.
func healthText(item report.Health, terminal bool, claims, pools int) string {
	passed, signs := "ok", map[health.Severity]string{health.SeverityError: "ERROR", health.SeverityWarning: "WARNING"}
	if terminal {
		passed = "✓"
		signs = map[health.Severity]string{health.SeverityError: "✗ error", health.SeverityWarning: "! warning"}
	}
	var text strings.Builder
	for _, line := range item.Passed {
		fmt.Fprintf(&text, "%s %s\n", passed, dashed(line))
	}
	if len(item.Findings) == 0 {
		fmt.Fprintf(&text, "%s no finding: %s and %s checked\n", passed, allocator.Counted(claims, "claim"), allocator.Counted(pools, "pool"))
	}
	printed := map[string]int{}
	for n, f := range item.Findings {
		if printed[f.ID]++; printed[f.ID] <= maxOfKind {
			fmt.Fprintf(&text, "%s %s %s\n    -> %s\n", signs[f.Severity], f.ID, dashed(f.Message), dashed(f.Remedy))
		}
		if more := printed[f.ID] - maxOfKind; more > 0 && (n+1 == len(item.Findings) || item.Findings[n+1].ID != f.ID) {
			fmt.Fprintf(&text, "    %d more of %s: kubectl ipam check -o csv lists all\n", more, f.ID)
		}
	}
	if len(item.NotChecked) > 0 {
		fmt.Fprintf(&text, "not checked: %s\n", dashed(strings.Join(item.NotChecked, ", ")))
	}
	return text.String()
}
