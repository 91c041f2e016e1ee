package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// healthPage is the data of the page with the findings of a check.
type healthPage struct {
	Errors, Warnings   int // number of findings in the selected area
	Areas              []crumb
	Rows               []findingRow
	Pages              pager
	Passed, NotChecked []string
}

// findingRow is a finding in a table.
type findingRow struct {
	health.Finding
	Pieces  []crumb // parts of the message; each address is a part with a link
	Objects []crumb // objects that the finding concerns
}

// prepareHealth reads the data that a check needs in addition to the inventory. The reads
// may take seconds, so prepareHealth does not hold the lock.
func (c *console) prepareHealth(ctx context.Context) page {
	why := "kubectl ipam check looks at them"
	var check func(*inventory.Inventory) health.Report
	if c.Health != nil {
		var err error
		if check, err = c.Health(ctx); err != nil {
			check, why = nil, err.Error()
		}
	}
	if check == nil {
		check = func(i *inventory.Inventory) health.Report {
			h := health.Check(i, health.DefaultGrace)
			h.NotChecked = append(h.NotChecked, fmt.Sprintf("Nodes, Services and the installation (%s)", why))
			return h
		}
	}
	return func(r *request) (*answer, error) { return r.health(check(r.Inventory)) }
}

// health serves the page with the findings of a check.
func (r *request) health(h health.Report) (*answer, error) {
	names := slices.Sorted(maps.Keys(health.Areas))
	selected := r.value("area")
	if selected != "" && !slices.Contains(names, selected) {
		return nil, badRequest("area=%.100s: use one of %s", selected, strings.Join(names, ", "))
	}
	found := map[string]int{} // area -> number of findings
	for _, f := range h.Findings {
		found[f.Area()]++
	}
	page := healthPage{
		Areas:  []crumb{{fmt.Sprintf("all (%d)", len(h.Findings)), "/health", selected == ""}},
		Passed: h.Passed, NotChecked: h.NotChecked,
	}
	for _, name := range names {
		page.Areas = append(page.Areas, crumb{fmt.Sprintf("%s (%d)", name, found[health.Areas[name]]), link("/health", "area", name), name == selected})
	}
	if selected != "" {
		h.Findings = slices.DeleteFunc(h.Findings, func(f health.Finding) bool { return f.Area() != health.Areas[selected] })
	}
	for _, f := range h.Findings {
		if f.Severity == health.SeverityError {
			page.Errors++
		} else {
			page.Warnings++
		}
	}
	ordered := slices.Clone(h.Findings)
	slices.SortStableFunc(ordered, func(x, y health.Finding) int { return cmp.Compare(orderOf(x), orderOf(y)) })
	shown, pages, err := pageOf(r, ordered, "/health", "area", selected)
	if err != nil {
		return nil, err
	}
	page.Pages = pages
	for _, f := range shown {
		row := findingRow{Finding: f, Pieces: linkAddresses(f.Message)}
		for _, k := range f.Objects {
			row.Objects = append(row.Objects, crumb{Text: report.NewObject(k).String(), Link: r.linkOf(k)})
		}
		page.Rows = append(page.Rows, row)
	}
	return &answer{template: "health.html", title: "Health", data: page, also: []format{formatJSON}, document: report.NewHealth(h)}, nil
}

// orderOf returns the sort key of a finding: errors precede warnings, because a long list
// has several pages.
func orderOf(f health.Finding) int {
	if f.Severity == health.SeverityError {
		return 0
	}
	return 1
}

// linkOf returns the address of the page about a pool, a claim or an address object; ""
// if the inventory lacks the object.
func (r *request) linkOf(k inventory.Key) string {
	if p := r.Pool(k); p != nil {
		return link("/pool", "pool", poolName(p))
	}
	if c := r.Claim(k); c != nil {
		return linkOfClaim(c)
	}
	return ""
}

// linkOfClaim returns the address of the page about the first range of a claim; for a
// claim without addresses, the page of claims with a filter that selects the claim.
func linkOfClaim(c *inventory.Claim) string {
	switch {
	case len(c.Ranges) > 0:
		return link("/address", "address", c.Ranges[0])
	case c.OwnerClaim != inventory.Key{}: // the page of claims has no address objects
		return ""
	}
	return link("/claims", "kind", inventory.KindOf(c.Key), "tenant", c.Tenant, "state", c.State)
}

// addressCharacters matches words that consist of the characters of addresses.
var addressCharacters = regexp.MustCompile(`[0-9A-Fa-f.:]+`)

// linkAddresses divides a text into pieces. An address becomes a piece with a link; a
// network does not.
func linkAddresses(text string) (pieces []crumb) {
	end := 0 // end of the last piece
	for _, at := range addressCharacters.FindAllStringIndex(text, -1) {
		word := strings.TrimRight(text[at[0]:at[1]], ".:") // punctuation at the end of a sentence
		after := at[0] + len(word)
		if _, err := netip.ParseAddr(word); err != nil || strings.HasPrefix(text[after:], "/") {
			continue
		}
		if at[0] > end {
			pieces = append(pieces, crumb{Text: text[end:at[0]]})
		}
		pieces = append(pieces, crumb{Text: word, Link: link("/address", "address", word)})
		end = after
	}
	if end < len(text) {
		pieces = append(pieces, crumb{Text: text[end:]})
	}
	return pieces
}
