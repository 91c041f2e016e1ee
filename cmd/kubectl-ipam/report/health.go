package report

import "butlerlabs.dev/ipam/cmd/kubectl-ipam/health"

// Finding is a defect of stored objects with a remedy.
type Finding struct {
	ID       string          `json:"id"`
	Severity health.Severity `json:"severity"`
	Title    string          `json:"title"`
	Objects  []*Object       `json:"objects,omitempty"`
	Message  string          `json:"message"`
	Remedy   string          `json:"remedy"`
}

// Health is the outcome of a check.
type Health struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Passed     []string  `json:"passed"`
	Findings   []Finding `json:"findings"`
	NotChecked []string  `json:"notChecked"`
}

// NewHealth returns the outcome of a check.
func NewHealth(h health.Report) Health {
	item := Health{APIVersion: APIVersion, Kind: KindCheck, Passed: append([]string{}, h.Passed...), Findings: []Finding{}, NotChecked: append([]string{}, h.NotChecked...)}
	for _, f := range h.Findings {
		item.Findings = append(item.Findings, Finding{f.ID, f.Severity, f.Title, newObjects(f.Objects), f.Message, f.Remedy})
	}
	return item
}
