package main

import (
	"fmt"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/report"
)

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
