package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// evil is a text that a terminal obeys: it sets the title, changes the colour, writes
// over the line, begins a new line, and reverses the text.
const evil = "=x\x1b]0;owned\x07\x1b[31m\rfree\nnext\u202eline\u009b2J"

// checkTerminal reports what a terminal would obey in an output with a number of lines.
func checkTerminal(t *testing.T, what, out string, lines int) {
	t.Helper()
	if out == "" || out != safetext.Text(out) {
		t.Errorf("%s: a terminal obeys %q", what, out)
	}
	if n := strings.Count(out, "\n"); n != lines {
		t.Errorf("%s: %d lines, want %d: %q", what, n, lines, out)
	}
}

// No text of an author reaches a terminal as a control character, in no output of a
// command, and no text begins a line of its own.
func TestOutput_ControlCharacters(t *testing.T) {
	var out, errs bytes.Buffer
	a := newApp(streams{out: &out, err: &errs})
	a.output = "table"
	address := allocator.Range{}
	segment := report.Segment{State: "reserved", Reservation: evil, Tenant: evil, Purpose: evil, ReservedBy: &report.Object{Kind: "NetworkPool", Name: "vlan40"}, Releases: []report.Release{{Claim: evil, Tenant: evil}}, Exact: address}
	claim := report.Claim{Object: report.Object{Kind: "IPAllocation", Name: "web"}, Tenant: evil, Reason: evil}
	finding := report.Finding{ID: "IPAM104", Severity: health.SeverityError, Message: evil, Remedy: evil}
	claims := list[report.Claim]{
		kind: report.KindClaimList, name: func(c report.Claim) string { return c.Name }, items: []report.Claim{claim}, columns: []column[report.Claim]{
			{"TENANT", false, func(c report.Claim) string { return c.Tenant }}, {"REASON", false, func(c report.Claim) string { return c.Reason }},
		},
	}
	plan := &importer.Plan{Pool: &inventory.Pool{Key: butler.NetworkPoolKey("ns", evil)}, Rows: 1, LeftOut: []importer.LeftOut{{Reason: evil, Rows: []int{2}}}, NotInUse: []importer.LeftOut{{Reason: evil, Rows: []int{3}}}}
	withConflict := *plan
	withConflict.Conflicts = []importer.Conflict{{Kind: importer.ConflictOwned, Rows: []int{2}, Text: evil}}
	file := &addressfile.File{Format: "csv", Unit: "row", Ignored: []string{evil}, Example: addressfile.Shorten(evil)}
	for what, c := range map[string]struct {
		lines int
		print func() error
	}{
		"who":   {6, func() error { return a.explain(segment) }},
		"table": {2, func() error { return claims.print(a) }},
		"check": {2, func() error {
			return printTo(a, healthText(report.Health{Findings: []report.Finding{finding}}, false, 1, 1))
		}},
		"import":                {4, func() error { return a.printImport(newImportItem(file, plan), plan, importFlags{}) }},
		"import with conflicts": {6, func() error { return a.printImport(newImportItem(file, &withConflict), &withConflict, importFlags{}) }},
		"warning":               {1, func() error { a.warn("left out: %s", evil); return nil }},
		"ignored columns":       {1, func() error { a.warnIgnored(file); return nil }},
	} {
		out.Reset()
		errs.Reset()
		if err := c.print(); err != nil {
			t.Fatal(err)
		}
		checkTerminal(t, what, out.String()+errs.String(), c.lines)
	}
	text, err := a.planText(planOutput{item: report.Plan{Denied: []string{evil}}, server: response{denied, "denied: " + evil, []string{evil}}})
	if err != nil {
		t.Fatal(err)
	}
	checkTerminal(t, "plan", text, 3)
}

func printTo(a *app, text string) error {
	_, err := a.out.Write([]byte(text))
	return err
}

// Programs get the values that authors wrote: JSON and YAML as they are, CSV behind the
// prefix of cells that a spreadsheet would compute.
func TestOutput_ValuesForPrograms(t *testing.T) {
	var out bytes.Buffer
	a := newApp(streams{out: &out, err: &out})
	values := list[string]{kind: "List", name: func(s string) string { return s }, items: []string{evil, "@sum", "plain", "-5"}, columns: []column[string]{{"VALUE", false, func(s string) string { return s }}}}
	for _, a.output = range []string{"json", "yaml"} {
		out.Reset()
		if err := values.print(a); err != nil {
			t.Fatal(err)
		}
		text := out.Bytes()
		if a.output == "json" {
			checkTerminal(t, "json", out.String(), 10)
		} else if strings.ContainsAny(out.String(), "\x1b\r\u009b\a") {
			t.Errorf("yaml: a terminal obeys %q", out.String())
		} else if converted, err := yaml.YAMLToJSON(text); err != nil {
			t.Fatal(err)
		} else {
			text = converted
		}
		var got struct{ Items []string }
		if err := json.Unmarshal(text, &got); err != nil || strings.Join(got.Items, "|") != strings.Join(values.items, "|") {
			t.Errorf("%s: %q, %v", a.output, got.Items, err)
		}
	}
	out.Reset()
	if a.output = "csv"; values.print(a) != nil {
		t.Fatal("csv is not printed")
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatal(rows, err)
	}
	for n, cell := range []string{"value", "'" + evil, "'@sum", "plain", "-5"} {
		if rows[n][0] != cell {
			t.Errorf("csv: cell %q, want %q", rows[n][0], cell)
		}
	}
}
