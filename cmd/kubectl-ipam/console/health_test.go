package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// checkedHandler returns a handler with Options.Health.
func checkedHandler(i *inventory.Inventory, health func(context.Context) (func(*inventory.Inventory) health.Report, error)) http.Handler {
	return New(Options{
		View:   func(context.Context) (View, error) { return View{Inventory: i}, nil },
		Health: health, Now: func() time.Time { return now }, Version: "test",
	})
}

func TestHealth_Golden(t *testing.T) {
	i := newInventory(t, objects())
	i.LeaveOut("ipaddressclaims.ipam.cluster.x-k8s.io", "ns")
	h := checkedHandler(i, func(context.Context) (func(*inventory.Inventory) health.Report, error) {
		return func(i *inventory.Inventory) health.Report {
			h := health.Check(i, time.Minute)
			h.Findings = append(h.Findings, health.Finding{
				Defect: health.NoLeader, Message: "the journal is not renewed <b>", Remedy: "kubectl -n butler-ipam-system get pods",
			})
			h.Passed = []string{"webhooks: 12 mutating, 11 validating"}
			h.NotChecked = append(h.NotChecked, "Nodes (forbidden)")
			return h
		}, nil
	})
	compareGolden(t, h, "health.html", "/health")
	compareGolden(t, h, "health.json", "/health.json")
	compareGolden(t, h, "health-pools.html", "/health?area=pools")
	compareGolden(t, h, "health-none.html", "/health?area=capacity")
}

// If Health is nil or fails, the page shows the findings of the inventory, and lists the
// rest as not checked.
func TestHealth_WithoutInstallation(t *testing.T) {
	for name, test := range map[string]struct {
		health func(context.Context) (func(*inventory.Inventory) health.Report, error)
		want   string
	}{
		"none": {nil, "Nodes, Services and the installation (kubectl ipam check looks at them)"},
		"failed": {func(context.Context) (func(*inventory.Inventory) health.Report, error) {
			return nil, errors.New("no route")
		}, "Nodes, Services and the installation (no route)"},
	} {
		var got report.Health
		if err := json.Unmarshal([]byte(mustGet(t, checkedHandler(newInventory(t, objects()), test.health), "/health.json")), &got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.NotChecked, []string{test.want}) || len(got.Findings) == 0 || got.Kind != report.KindCheck {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The reads for the health page do not delay other pages.
func TestHealth_DelaysNoOtherPage(t *testing.T) {
	reading, answered := make(chan struct{}), make(chan struct{})
	h := checkedHandler(newInventory(t, objects()), func(context.Context) (func(*inventory.Inventory) health.Report, error) {
		close(reading)
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Error("the page of pools waits for the reads of the page of findings")
		}
		return func(i *inventory.Inventory) health.Report { return health.Check(i, 0) }, nil
	})
	done := make(chan int)
	go func() { done <- get(t, h, "/health").Code }()
	<-reading
	mustGet(t, h, "/pools")
	close(answered)
	if code := <-done; code != http.StatusOK {
		t.Errorf("status %d", code)
	}
}

// A page has at most 200 findings, and the pages together contain each finding.
func TestHealth_Pages(t *testing.T) {
	all := []metav1.Object{networkPool("corp", "10.0.0.0/8", "")}
	for n := range 450 { // claims without finalizer
		all = append(all, allocation("corp", fmt.Sprintf("many-%03d", n), "many", fmt.Sprintf("10.64.%d.%d", n/250, n%250), fmt.Sprintf("10.64.%d.%d", n/250, n%250), butlerv1.TypeNodes))
	}
	h := handlerOf(newInventory(t, all))
	next, pages, seen := "/health?area=addresses", 0, map[string]bool{}
	for ; next != ""; pages++ {
		page := mustGet(t, h, next)
		for _, match := range regexp.MustCompile(`IPAllocation ns/(many-\d+)</a>`).FindAllStringSubmatch(page, -1) {
			seen[match[1]] = true
		}
		next = ""
		if match := regexp.MustCompile(`<a rel="next" href="([^"]*)"`).FindStringSubmatch(page); match != nil {
			next = html.UnescapeString(match[1])
		}
	}
	if pages != 3 || len(seen) != 450 {
		t.Errorf("%d pages with %d claims, want 3 with 450", pages, len(seen))
	}
}

func TestLinkAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"10.40.1.9 has two owners: ns/a, ns/b":          "[10.40.1.9] has two owners: ns/a, ns/b",
		"offers 10.0.0.0/24, and uses 2001:db8::1.":     "offers 10.0.0.0/24, and uses [2001:db8::1].",
		"10.0.0.1-10.0.0.7: owned since 12:30:05":       "[10.0.0.1]-[10.0.0.7]: owned since 12:30:05",
		"face of a cafe: 1.2.3, ::ffff:999.1.1.1, 2001": "face of a cafe: 1.2.3, ::ffff:999.1.1.1, 2001",
		"": "",
	} {
		var got strings.Builder
		for _, piece := range linkAddresses(text) {
			if piece.Link != "" {
				piece.Text = "[" + piece.Text + "]"
			}
			got.WriteString(piece.Text)
		}
		if got.String() != want {
			t.Errorf("%q: %q, want %q", text, got.String(), want)
		}
	}
}
