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
)

// What the chart's alerts read of tenants is there with a tenant; what they read of the rest is looked at elsewhere.
func TestTheAlertsReadMetricsThatThereAre(t *testing.T) {
	alerts, err := os.ReadFile("../../charts/butler-ipam/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bbutler_ipam_tenant_\w+`).FindAllString(string(alerts), -1)
	if len(names) == 0 {
		t.Fatal("no alert is about tenants")
	}
	pool(t, "metrics", "10.137.0.0/24", "10.137.0.0", "10.137.0.255")
	elastic(t, "metrics", "")
	c := live(t, "metrics", "metrics")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		series := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{.*tenant=%q,tenant_namespace=%q.*\} \d`, name, c.Name, c.Namespace))
		eventually(t, soon, func(ctx context.Context) error {
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
