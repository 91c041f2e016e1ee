package butler

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"butlerlabs.dev/ipam/test/suite"
)

// gets is how many IPPools clients have read one by one from the API server.
func gets(t *testing.T) (n int) {
	t.Helper()
	metrics, _ := suite.Kubectl(t, cluster, "", "get", "--raw=/metrics")
	for _, found := range regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="ippools"[^}]*verb="GET"[^}]*\} ([0-9]+)$`).FindAllStringSubmatch(metrics, -1) {
		count, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// claimReview is the AdmissionReview of the create of an IPClaim.
func claimReview(namespace, name, pool string) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":%[2]q,"operation":"CREATE","namespace":%[1]q,"name":%[2]q,
"kind":{"group":"ipam.metal3.io","version":"v1alpha1","kind":"IPClaim"},"resource":{"group":"ipam.metal3.io","version":"v1alpha1","resource":"ipclaims"},
"object":{"apiVersion":"ipam.metal3.io/v1alpha1","kind":"IPClaim","metadata":{"name":%[2]q,"namespace":%[1]q},"spec":{"pool":{"name":%[3]q}}}}}`, namespace, name, pool))
}

// A pool that does not exist is looked for at the API server.
func TestMissingPools_ReadsAreBounded(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.48.0.0/24"))
	send := port(t)
	const calls = 1500
	ask := func(pool func(i int) string) (reads, refused int) {
		t.Helper()
		before, denied := gets(t), atomic.Int64{}
		for _, err := range byMany(16, calls, func(i int) error {
			var answer admissionv1.AdmissionReview
			code, text := send("/mutate-ipam-metal3-io-v1alpha1-ipclaim?timeout=10s", claimReview(ns, fmt.Sprint("a-", i), pool(i)))
			if err := json.Unmarshal(text, &answer); code != 200 || err != nil {
				return fmt.Errorf("HTTP %d %s", code, text)
			}
			switch r := answer.Response; {
			case r.Allowed:
				return nil
			case r.Result.Code == 503 && r.Result.Details.RetryAfterSeconds == 1 && strings.Contains(r.Result.Message, "reads of the API server per second"):
				denied.Add(1)
				return nil
			default:
				return fmt.Errorf("refused: %v", r.Result)
			}
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return gets(t) - before, int(denied.Load())
	}

	began := time.Now()
	reads, refused := ask(func(i int) string { return fmt.Sprint("missing-", i) })
	took := time.Since(began)
	t.Logf("%d calls that name as many pools: %d reads in %s, %d refused", calls, reads, took, refused)
	if most := 400 + int(200*(took.Seconds()+1)); reads > most || reads+refused < calls {
		t.Errorf("%d reads and %d refusals, want at most %d reads", reads, refused, most)
	}
	suite.Create(t, admin, claim(ns, "real", 1)) // needs no read

	suite.Eventually(t, suite.Soon, func(context.Context) error { // as many reads as there may be are left again
		if reads, refused := ask(func(int) string { return "missing" }); refused > 0 {
			return fmt.Errorf("%d calls that name one pool: %d reads, %d refused", calls, reads, refused)
		}
		return nil
	})
}
