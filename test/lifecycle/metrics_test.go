package lifecycle

import (
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = It("shows every metric that the chart's alerts and dashboard read", func(ctx SpecContext) {
	namespace := shared.namespace(ctx)
	shared.create(ctx, butlerPool(namespace), claim(namespace, "one", 1))
	var read []string
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../charts/butler-ipam/files/" + file)
		Expect(err).NotTo(HaveOccurred())
		read = append(read, regexp.MustCompile(`\bbutler_\w+`).FindAllString(string(text), -1)...)
	}
	slices.Sort(read)
	for _, name := range slices.Compact(read) {
		Eventually(shared.metrics(ctx)).Should(MatchRegexp(`(?m)^`+name+`[{ ]`), name)
	}
})

// metrics reads the metrics of the first manager, for Eventually.
func (c *cluster) metrics(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Managers()[0].MetricsAddress+"/metrics", nil)
		if err != nil {
			return "", err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
}
