package backoff

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// Services wait for a full pool. They request their addresses again after a release only,
// and the oldest Service is served first.
func TestWaitingServices_AreServedOldestFirst(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, proxyIPPool(ns, "10.0.0.0/29"))
	owners := many(6, func(name string) client.Object { return proxyVIP(ns, ns, name) }) // all addresses
	suite.Create(t, admin, owners...)
	const waiting = 5
	began := time.Now()
	creates := func(code int) (names []string) {
		for _, c := range calls(t, began) {
			if c.verb == "create" && c.resource == "proxyvips" && c.code == code && c.namespace == "" {
				if name, of := strings.CutPrefix(c.name, "svc-"+ns+"."); of {
					names = append(names, name)
				}
			}
		}
		return names
	}
	var services []client.Object
	var want []string
	for i := waiting; i > 0; i-- {
		s := service(ns, ns, fmt.Sprint("w", i))
		suite.Create(t, admin, s)
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			switch {
			case !slices.Contains(creates(http.StatusForbidden), s.Name):
				return errors.New("its request is not denied yet")
			case time.Since(s.CreationTimestamp.Time) < 1100*time.Millisecond: // the age of a Service has seconds
				return errors.New("the next Service would be as old")
			}
			return nil
		})
		services, want = append(services, s), append(want, s.Name)
	}
	denied := len(creates(http.StatusForbidden))
	if denied > 2*waiting {
		t.Errorf("%d denied requests of %d Services, want 1 of each: nothing has changed", denied, waiting)
	}
	for _, o := range owners[:waiting] {
		suite.Delete(t, admin, o)
	}
	become(t, suite.Soon, services, isReady)
	if got := creates(http.StatusCreated); !slices.Equal(got, want) {
		t.Errorf("served in the order %q, want %q", got, want)
	}
	if n := len(creates(http.StatusForbidden)) - denied; n > 2*waiting {
		t.Errorf("%d denied requests after %d releases", n, waiting)
	}
}
