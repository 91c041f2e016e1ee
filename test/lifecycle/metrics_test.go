package lifecycle

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
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
		elsewhere := []string{"butler_ipam_certificate_ready", "butler_ipam_moved_ranges", "butler_ipam_unserved_objects"}
		if slices.Contains(elsewhere, name) || strings.HasPrefix(name, "butler_ipam_tenant_") {
			continue // only where there is something of the kind, or with --tenants: the tests of those read them
		}
		Eventually(shared.metrics(ctx)).Should(MatchRegexp(`(?m)^`+name+`[{ ]`), name)
	}
})

// metrics reads the metrics of the first manager, for Eventually.
func (c *cluster) metrics(ctx context.Context) func() (string, error) {
	return func() (string, error) { return get(ctx, "http://"+c.Managers()[0].MetricsAddress+"/metrics") }
}

var _ = It("tells pools of one name and two kinds apart", func(ctx SpecContext) {
	namespace := shared.namespace(ctx)
	other := &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"}, Spec: metal3v1.IPPoolSpec{Prefix: 24, NamePrefix: "pool", Pools: []metal3v1.Pool{{Subnet: ptr.To(metal3v1.Subnet("10.61.0.0/24"))}}}}
	shared.create(ctx, butlerPool(namespace), other)
	for _, resource := range []string{"networkpools.butler.butlerlabs.dev", "ippools.ipam.metal3.io"} {
		Eventually(shared.metrics(ctx)).Should(ContainSubstring(`butler_network_pool_total_ips{namespace=%q,pool="pool",resource=%q} `, namespace, resource))
	}
})
