package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// importItem is the output of import.
type importItem struct {
	APIVersion   string            `json:"apiVersion"`
	Kind         string            `json:"kind"`
	Pool         *report.Object    `json:"pool"`
	Format       string            `json:"format"`
	Rows         int               `json:"rows"`
	Ignored      []string          `json:"ignoredColumns"` // headings of columns with content and without meaning
	Claims       []importedItem    `json:"claims"`
	Reservations []reservationItem `json:"reservations"`
	Present      int               `json:"present"`    // number of rows whose addresses the cluster has already
	Duplicates   int               `json:"duplicates"` // number of rows whose addresses another row of the same owner has
	LeftOut      []leftOutItem     `json:"leftOut"`    // rows that can have addresses in use, and are not imported
	NotInUse     []leftOutItem     `json:"notInUse"`   // rows without addresses in use, as the file says
	Conflicts    []conflictItem    `json:"conflicts"`
	Written      bool              `json:"written"` // to the cluster or as manifests
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

func newImportItem(file *addressfile.File, plan *importer.Plan) importItem {
	item := importItem{
		APIVersion: report.APIVersion, Kind: "Import", Pool: report.NewObject(plan.Pool.Key), Format: file.Format, Rows: plan.Rows, Ignored: append([]string{}, file.Ignored...), Present: plan.Present, Duplicates: plan.Duplicates,
		Claims: []importedItem{}, Reservations: []reservationItem{}, LeftOut: []leftOutItem{}, NotInUse: []leftOutItem{}, Conflicts: []conflictItem{},
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
	for _, l := range plan.NotInUse {
		item.NotInUse = append(item.NotInUse, leftOutItem(l))
	}
	for _, c := range plan.Conflicts {
		item.Conflicts = append(item.Conflicts, conflictItem{string(c.Kind), append([]int{}, c.Rows...), c.Text})
	}
	return item
}

// shownColumns bounds the ignored columns in a warning: a file of another tool can have
// hundreds.
const shownColumns = 8

// warnIgnored prints a warning about the columns of a file that have content and no
// meaning.
func (a *app) warnIgnored(file *addressfile.File) {
	if len(file.Ignored) == 0 {
		return
	}
	var names []string
	for _, heading := range file.Ignored {
		names = append(names, strconv.Quote(addressfile.Shorten(heading)))
	}
	remedy := ""
	if file.Example != "" {
		remedy = fmt.Sprintf(": use --map %s, or another field, for a column that counts, and --map %s for one that does not", addressfile.QuoteShell(file.Example+"=tenant"), addressfile.QuoteShell(file.Example+"=ignore"))
	}
	a.warn("%s without a meaning %s ignored: %s%s", allocator.Counted(len(names), "column"), allocator.Agree(len(names), "is", "are"), report.Listed(names, shownColumns), remedy)
}

// shownLines bounds the objects, and the parts of a list of rows, in the table format.
const shownLines = 20

func (a *app) printImport(item importItem, plan *importer.Plan, f importFlags) error {
	if a.output == "json" || a.output == "yaml" {
		return a.printDocument(item)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "read %s (%s): %s\n", allocator.Counted(item.Rows, "row"), item.Format, strings.Join(summarize(item, plan), ", "))
	for _, l := range item.LeftOut {
		fmt.Fprintf(&text, "left out %s: %s\n", rowsText(l.Rows), dashed(l.Reason))
	}
	for _, l := range item.NotInUse {
		fmt.Fprintf(&text, "not in use %s: %s\n", rowsText(l.Rows), dashed(l.Reason))
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

// summarize returns the numbers of planned claims, reservations and unchanged rows.
func summarize(item importItem, plan *importer.Plan) (parts []string) {
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
		what := map[bool]string{true: "network", false: "preAllocation"}[item.Reservations[0].Kind == string(addressfile.KindReserved)]
		parts = append(parts, fmt.Sprintf("%d reserved as %s", len(rows), allocator.Counted(n, what)))
	}
	if item.Present > 0 {
		parts = append(parts, fmt.Sprintf("%d there already", item.Present))
	}
	if item.Duplicates > 0 {
		parts = append(parts, fmt.Sprintf("%d repeated", item.Duplicates))
	}
	for _, group := range []struct {
		what string
		list []leftOutItem
	}{{"left out", item.LeftOut}, {"not in use", item.NotInUse}} {
		rows := 0
		for _, l := range group.list {
			rows += len(l.Rows)
		}
		if rows > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", rows, group.what))
		}
	}
	if len(parts) == 0 {
		parts = []string{"every row is in conflict"}
	}
	return parts
}

// listImported prints the claims and reservations: with -o wide every line, otherwise
// shownLines.
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

// rowsText returns row numbers with consecutive rows as a range: "rows 3-7, 12". A list
// of more than shownLines parts ends with a count.
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
