package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// The README has exactly one row, with a remedy, for each defect.
func TestREADME_Findings(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| IPAM") {
			got = append(got, strings.Join(cells[:len(cells)-1], " | "))
			if remedy := cells[len(cells)-1]; len(cells) != 4 || len(remedy) < 20 {
				t.Errorf("no remedy: %s", line)
			}
		}
	}
	for _, d := range health.Defects() {
		want = append(want, fmt.Sprintf("| %s | %s | %s", d.ID, d.Severity, d.Title))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(slices.Compact(want)) != len(want) || !slices.IsSorted(want) {
		t.Errorf("identifiers are not unique and sorted: %q", want)
	}
}

// The check expects each webhook of config/webhook: if one is missing, the check reports
// exactly one finding.
func TestCheckWebhooks_ExpectsThoseOfConfig(t *testing.T) {
	text, err := os.ReadFile("../../config/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var mutating admissionv1.MutatingWebhookConfiguration
	var validating admissionv1.ValidatingWebhookConfiguration
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		into := any(&mutating)
		if bytes.Contains(document, []byte("kind: Validating")) {
			into = &validating
		}
		if err := yaml.Unmarshal(document, into); err != nil {
			t.Fatal(err)
		}
	}
	if len(mutating.Webhooks) == 0 || len(validating.Webhooks) == 0 {
		t.Fatal("no webhooks")
	}
	find := func(m admissionv1.MutatingWebhookConfiguration, v admissionv1.ValidatingWebhookConfiguration) []health.Finding {
		hooks := health.SelectWebhooks([]admissionv1.MutatingWebhookConfiguration{m}, []admissionv1.ValidatingWebhookConfiguration{v})
		return health.CheckWebhooks(inventory.New(time.Now(), nil), hooks)
	}
	if list := find(mutating, validating); len(list) > 0 {
		t.Errorf("complete: %+v", list)
	}
	requireMissing := func(list []health.Finding, name string) {
		t.Helper()
		if len(list) != 1 || list[0].Defect != health.WebhookMissing || !strings.HasSuffix(list[0].Message, " "+name+" is missing") {
			t.Errorf("without %s: %+v", name, list)
		}
	}
	for n, w := range mutating.Webhooks {
		less := *mutating.DeepCopy()
		less.Webhooks = slices.Delete(less.Webhooks, n, n+1)
		requireMissing(find(less, validating), w.Name)
	}
	for n, w := range validating.Webhooks {
		less := *validating.DeepCopy()
		less.Webhooks = slices.Delete(less.Webhooks, n, n+1)
		requireMissing(find(mutating, less), w.Name)
	}
	hooks := health.SelectWebhooks([]admissionv1.MutatingWebhookConfiguration{mutating}, []admissionv1.ValidatingWebhookConfiguration{validating})
	if m, v := hooks.Len(); m != len(mutating.Webhooks) || v != len(validating.Webhooks) {
		t.Errorf("%d mutating and %d validating webhooks are expected, there are %d and %d", m, v, len(mutating.Webhooks), len(validating.Webhooks))
	}
}

// The text has at most maxOfKind findings of a kind, and the number of omitted findings.
func TestHealthText_BoundsFindingsOfAKind(t *testing.T) {
	var h report.Health
	for _, id := range []string{"IPAM103", "IPAM104", "IPAM301"} {
		for n := range map[string]int{"IPAM103": maxOfKind, "IPAM104": maxOfKind + 2, "IPAM301": 1}[id] {
			h.Findings = append(h.Findings, report.Finding{ID: id, Severity: health.SeverityWarning, Message: fmt.Sprint("message ", n), Remedy: "remedy"})
		}
	}
	text := healthText(h, false, 1, 1)
	for id, want := range map[string]int{"IPAM103": maxOfKind, "IPAM104": maxOfKind, "IPAM301": 1} {
		if got := strings.Count(text, "WARNING "+id); got != want {
			t.Errorf("%d findings of %s, want %d: %s", got, id, want, text)
		}
	}
	if !strings.Contains(text, "\n    2 more of IPAM104: kubectl ipam check -o csv lists all\nWARNING IPAM301") || strings.Contains(text, "more of IPAM103") {
		t.Error(text)
	}
}
