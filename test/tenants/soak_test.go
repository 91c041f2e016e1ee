package tenants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// soakTime is how long the mixed load lasts: TENANTS_SOAK, as in 30m. Timers are a
// twentieth of what they are by default then.
func soakTime() time.Duration {
	d, err := time.ParseDuration(os.Getenv("TENANTS_SOAK"))
	if err != nil {
		return 0
	}
	return d
}

// patience is the managers' timers.
func patience() []string {
	if soakTime() > 0 {
		return []string{"--tenants-pending-after=50ms", "--tenants-headroom-after=1500ms", "--tenants-shrink-after=30s", "--tenants-settle=250ms", "--tenants-orphan-after=15s"}
	}
	return []string{"--tenants-settle=1s", fmt.Sprintf("--tenants-shrink-after=%s", shrinkAfter), fmt.Sprintf("--tenants-orphan-after=%s", orphanAfter)}
}

// Services come and go at random, then stay as they are: what a tenant has must come to
// rest each time, and stay at rest.
func TestSoak_MixedLoadSettles(t *testing.T) {
	duration, shrink := soakTime(), 30*time.Second
	if duration == 0 {
		duration, shrink = 20*time.Second, shrinkAfter
	}
	pool(t, "soak", "10.40.0.0/24", "10.40.0.0", "10.40.0.63")
	elastic(t, "soak", ", quotaPerTenant: {maxLoadBalancerIPs: 24}")
	c := live(t, "soak", "soak")
	offers(t, "10.40.0.0-10.40.0.1")
	random := rand.New(rand.NewPCG(1, 2))
	var services []*corev1.Service
	made, rests := 0, 0
	for end := time.Now().Add(duration); time.Now().Before(end); rests++ {
		for range 10 + random.IntN(20) {
			if len(services) > 0 && random.IntN(5) < 2 || len(services) >= 28 {
				at := random.IntN(len(services))
				dropService(t, services[at])
				services = slices.Delete(services, at, at+1)
			} else {
				made++
				services = append(services, balancer(t, fmt.Sprintf("soak-%d", made)))
			}
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond) // the load's own rhythm
		}
		// Whatever is idle now has gone after this, and nothing else moves.
		rest := ""
		suite.Eventually(t, 2*shrink+suite.Soon, func(ctx context.Context) error {
			have, err := allocations(ctx, c)
			if is := strings.Join(have, "\n"); err == nil && is != rest {
				rest = is
				err = fmt.Errorf("still moving: %s", is)
			}
			if err == nil {
				err = enough(ctx, len(services))
			}
			return err
		})
		settled := time.Now()
		for time.Since(settled) < shrink+5*time.Second {
			have, err := allocations(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if is := strings.Join(have, "\n"); is != rest {
				if len(is) > len(rest) {
					t.Fatalf("%s after the last change of a Service it grew:\n%s\nwas\n%s", time.Since(settled), is, rest)
				}
				rest = is // idle blocks go
			}
			time.Sleep(100 * time.Millisecond)
		}
		always(t, shrink+5*time.Second, func(ctx context.Context) error {
			have, err := allocations(ctx, c)
			if is := strings.Join(have, "\n"); err == nil && is != rest {
				err = fmt.Errorf("no Service has changed, yet the tenant has\n%s\nand had\n%s", is, rest)
			}
			return err
		})
	}
	t.Logf("%d Services in %s, %d times at rest", made, duration, rests)
}

// enough tells whether every Service is served that quota and pool have room for.
func enough(ctx context.Context, want int) error {
	all := &corev1.ServiceList{}
	if err := tenantPlane.Client.List(ctx, all, client.InNamespace("default")); err != nil {
		return err
	}
	served := 0
	for i := range all.Items {
		if len(all.Items[i].Status.LoadBalancer.Ingress) > 0 {
			served++
		}
	}
	if served < min(want, 24) {
		return fmt.Errorf("%d of %d Services are served", served, want)
	}
	return nil
}
