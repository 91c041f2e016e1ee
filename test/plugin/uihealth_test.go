package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The findings on the health page equal the findings of kubectl ipam check, except for
// the dry-run create of the command.
func TestUI_HealthEqualsCheck(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	full := suite.Kinds[0].Claim(ns, "all", "10.95.0.0").(*butlerv1.IPAllocation)
	full.Spec.PoolRef.Name, full.Spec.PinnedRange.EndAddress = "full", "10.95.0.3"
	suite.Create(t, admin, networkPool(ns, "full", "10.95.0.0/30", ns), full, networkPool(ns, "shared", "10.95.0.0/24", ns))
	u := startUI(t, cluster.Kubeconfig())
	times := regexp.MustCompile(`at \d{4}-[-0-9T:]+Z|\b(in|for) (\d+[hms])+`) // durations are counted from now
	isCreate := func(line string) bool {
		return strings.HasPrefix(line, "a dry-run create") || strings.HasPrefix(line, "a create (")
	}
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		var page checked
		if err := json.Unmarshal([]byte(u.mustGet(t, "/health.json")), &page); err != nil {
			return err
		}
		command := decoded[checked](t, "check")
		if !slices.ContainsFunc(page.NotChecked, isCreate) || !slices.ContainsFunc(command.Passed, isCreate) {
			return fmt.Errorf("the page does not leave out the create, or the command does not try one: %q, %q", page.NotChecked, command.Passed)
		}
		if ids := page.ids(); !slices.Contains(ids, "IPAM302") || !slices.Contains(ids, "IPAM201") {
			return fmt.Errorf("findings %q", ids)
		}
		for _, c := range []*checked{&page, &command} {
			for n := range c.Passed {
				c.Passed[n] = times.ReplaceAllString(c.Passed[n], "TIME")
			}
			for n := range c.Findings {
				c.Findings[n].Message = times.ReplaceAllString(c.Findings[n].Message, "TIME")
			}
			c.Passed, c.NotChecked = slices.DeleteFunc(c.Passed, isCreate), slices.DeleteFunc(c.NotChecked, isCreate)
		}
		if !reflect.DeepEqual(page, command) {
			return fmt.Errorf("the page differs from the command:\n%+v\n%+v", page, command)
		}
		return nil
	})
	pools := u.mustGet(t, "/health?area=pools")
	if !strings.Contains(pools, ">NetworkPool "+ns+"/shared</a>") || strings.Contains(pools, "IPAM302") {
		t.Errorf("findings about pools: %s", pools)
	}
}

// Reloads of the health page read the cluster at most once in ten seconds, and create
// nothing.
func TestUI_HealthReload(t *testing.T) {
	u := startUI(t, cluster.Kubeconfig())
	before := requests(t, "LIST", "nodes")
	begun := time.Now()
	u.mustGet(t, "/health")
	first := requests(t, "LIST", "nodes")
	if first != before+1 {
		t.Fatalf("the first page has caused %d lists of Nodes, want 1", first-before)
	}
	creates := requests(t, "POST", "ipallocations")
	for range 30 {
		u.mustGet(t, "/health")
		u.mustGet(t, "/health.json")
	}
	if n, most := requests(t, "LIST", "nodes")-first, int(time.Since(begun)/(10*time.Second)); n > most {
		t.Errorf("60 pages in %s have caused %d lists of Nodes, want at most %d", time.Since(begun).Round(time.Millisecond), n, most)
	}
	if n := requests(t, "POST", "ipallocations") - creates; n > 0 {
		t.Errorf("the pages have caused %d creates", n)
	}
}

// requests returns the API server's counter of requests with a verb for a resource.
func requests(t *testing.T, verb, resource string) (n int) {
	t.Helper()
	metrics, _, err := cluster.Kubectl(t.Context(), "", "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="`+verb+`"`) && strings.Contains(line, `resource="`+resource+`"`) {
			count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
			if err != nil {
				t.Fatal(err)
			}
			n += count
		}
	}
	return n
}
