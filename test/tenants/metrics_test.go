package tenants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	"butlerlabs.dev/ipam/test/suite"
)

// What the chart's alerts and its dashboard read of tenants is there with a tenant; what
// they read of the rest is looked at elsewhere.
func TestMetrics_OfAlertsAndDashboard(t *testing.T) {
	var names []string
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../charts/butler-ipam/files/" + file)
		if err != nil {
			t.Fatal(err)
		}
		read := regexp.MustCompile(`\bbutler_ipam_tenant_\w+`).FindAllString(string(text), -1)
		if len(read) == 0 {
			t.Errorf("nothing in %s is about tenants", file)
		}
		names = append(names, read...)
	}
	pool(t, "metrics", "10.137.0.0/24", "10.137.0.0", "10.137.0.255")
	elastic(t, "metrics", "")
	c := live(t, "metrics", "metrics")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		series := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{.*tenant=%q,tenant_namespace=%q.*\} \d`, name, c.Name, c.Namespace))
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			for _, m := range cluster.Managers() { // the one that holds the journal serves the tenants
				text, err := metrics(ctx, m.MetricsAddress)
				if err != nil {
					return err
				}
				if series.MatchString(text) {
					return nil
				}
			}
			return errors.New("nobody shows " + name)
		})
	}
}

func metrics(ctx context.Context, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
