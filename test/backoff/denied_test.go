package backoff

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	claims = 40 // refused ones of each kind
	// longest is the longest pause, and slack what a call, a policy's end and a slow
	// machine take beside it.
	longest = 30 * time.Second
	slack   = 15 * time.Second
)

const (
	opCreate = admissionregistrationv1.Create
	opUpdate = admissionregistrationv1.Update
	opDelete = admissionregistrationv1.Delete
)

// kind is one kind of refused write.
type kind struct {
	name string
	// refuse has writes refused and makes what they are for. end has them accepted again,
	// and served tells of an object whether it is as it should be then.
	refuse func(t *testing.T, ns string, n int) (objects []client.Object, end func())
	served func(client.Object) bool
}

func isReady(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.IPAllocation:
		return o.Status.Phase == v1alpha1.PhaseAllocated
	case *metal3v1.IPClaim:
		return o.Status.Address != nil
	case *novaedgev1.ProxyVIP:
		return apimeta.IsStatusConditionTrue(o.Status.Conditions, novaedgev1.ConditionBound)
	case *corev1.Service:
		return len(o.Status.LoadBalancer.Ingress) > 0
	}
	return false
}

func isGone(client.Object) bool { return false }

var kinds = []kind{
	{"ipclaim-address-create", addressRefused("ipam.metal3.io", func(ns, name string) client.Object { return ipClaim(ns, "pool", name) }), isReady},
	{"ipaddressclaim-address-create", addressRefused("ipam.cluster.x-k8s.io", func(ns, name string) client.Object { return ipAddressClaim(ns, "pool", name) }), isNamed},
	{"ipclaim-address-create-with-ever-new-words", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		end := askBefore(t, ns, "ipaddresses", "ipam.metal3.io", http.StatusForbidden, opCreate)
		suite.Create(t, admin, ipPool(ns, "pool", "10.0.0.1", "10.0.0.200"))
		return made(t, many(n, func(name string) client.Object { return ipClaim(ns, "pool", name) })), end
	}, isReady},
	{"ipclaim-status", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, ipPool(ns, "pool", "10.0.0.1", "10.0.0.200"))
		end := statusRefused(t, ns, "ipam.metal3.io", "ipclaims", ipClaim(ns, "pool", "probe"))
		return made(t, many(n, func(name string) client.Object { return ipClaim(ns, "pool", name) })), end
	}, isReady},
	{"ipclaim-everything", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, ipPool(ns, "pool", "10.0.0.1", "10.0.0.200"))
		end := statusRefused(t, ns, "ipam.metal3.io", "ipclaims", ipClaim(ns, "pool", "probe"))
		more := forbid(t, ns+"-more", map[string]string{"refuse": ns}, "ipam.metal3.io", "ipaddresses", addressProbe("ipam.metal3.io", ns), opCreate)
		return made(t, many(n, func(name string) client.Object { return ipClaim(ns, "pool", name) })), func() { end(); drop(t, more) }
	}, isReady},
	{"ipallocation-status", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, networkPool(ns, "pool", "10.0.0.0/24"))
		end := statusRefused(t, ns, "butler.butlerlabs.dev", "ipallocations", allocation(ns, "pool", "probe"))
		return made(t, many(n, func(name string) client.Object { return allocation(ns, "pool", name) })), end
	}, isReady},
	{"ipallocation-status-as-overtaken", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, networkPool(ns, "pool", "10.0.0.0/24"))
		end := askBefore(t, ns, "ipallocations/status", "butler.butlerlabs.dev", http.StatusConflict, opUpdate)
		return made(t, many(n, func(name string) client.Object { return allocation(ns, "pool", name) })), end
	}, isReady},
	{"ipallocation-pending", pendingRefused("butler.butlerlabs.dev", "ipallocations", func(ns, name string) client.Object { return allocation(ns, "pool", name) }, func(ns string) client.Object { return networkPool(ns, "pool", "10.0.0.0/24") }), isReady},
	{"ipclaim-pending", pendingRefused("ipam.metal3.io", "ipclaims", func(ns, name string) client.Object { return ipClaim(ns, "pool", name) }, func(ns string) client.Object { return ipPool(ns, "pool", "10.0.0.1", "10.0.0.200") }), isReady},
	{"proxyvip-pending", pendingRefused("novaedge.io", "proxyvips", func(ns, name string) client.Object { return proxyVIP(ns, ns, name) }, func(ns string) client.Object { return proxyIPPool(ns, "10.0.0.0/24") }), isReady},
	{"proxyvip-status", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, proxyIPPool(ns, "10.0.0.0/24"))
		end := statusRefused(t, ns, "novaedge.io", "proxyvips", proxyVIP(ns, ns, "probe"))
		return made(t, many(n, func(name string) client.Object { return proxyVIP(ns, ns, name) })), end
	}, isReady},
	{"ipallocation-finalizer", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, networkPool(ns, "pool", "10.0.0.0/24"))
		all := made(t, many(n, func(name string) client.Object { return allocation(ns, "pool", name) }))
		become(t, time.Minute, all, isReady)
		binding := forbid(t, ns, map[string]string{"refuse": ns}, "butler.butlerlabs.dev", "ipallocations", patches(all[0], false), opUpdate)
		return deleted(t, all), func() { drop(t, binding) }
	}, isGone},
	{"ipclaim-address-delete", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, ipPool(ns, "pool", "10.0.0.1", "10.0.0.200"))
		all := made(t, many(n, func(name string) client.Object { return ipClaim(ns, "pool", name) }))
		become(t, time.Minute, all, isReady)
		var addresses metal3v1.IPAddressList
		if err := admin.List(t.Context(), &addresses, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		binding := forbid(t, ns, map[string]string{"refuse": ns}, "ipam.metal3.io", "ipaddresses", patches(&addresses.Items[0], false), opUpdate, opDelete)
		return deleted(t, all), func() { drop(t, binding) }
	}, isGone},
	{"service-vip-create", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, proxyIPPool(ns, "10.0.0.0/24"))
		labels := map[string]string{novaedgev1.LabelServiceNamespace: ns}
		probe := proxyVIP(ns, ns, "probe")
		probe.Labels = labels
		binding := forbid(t, ns, labels, "novaedge.io", "proxyvips", func(ctx context.Context) error {
			return admin.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		}, opCreate)
		return made(t, many(n, func(name string) client.Object { return service(ns, ns, name) })), func() { drop(t, binding) }
	}, isReady},
	{"service-status", func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, proxyIPPool(ns, "10.0.0.0/24"))
		end := statusRefused(t, ns, "", "services", service(ns, "none", "probe"))
		return made(t, many(n, func(name string) client.Object { return service(ns, ns, name) })), end
	}, isReady},
}

func isNamed(o client.Object) bool { return nameOfAddress(o) != "" }

// made creates objects.
func made(t *testing.T, all []client.Object) []client.Object {
	t.Helper()
	suite.Create(t, admin, all...)
	return all
}

func deleted(t *testing.T, all []client.Object) []client.Object {
	t.Helper()
	for _, o := range all {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func drop(t *testing.T, binding client.Object) {
	t.Helper()
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Error(err)
	}
}

// addressRefused has the address objects of claims refused.
func addressRefused(group string, claim func(ns, name string) client.Object) func(*testing.T, string, int) ([]client.Object, func()) {
	return func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		suite.Create(t, admin, ipPool(ns, "pool", "10.0.0.1", "10.0.0.200"))
		binding := forbid(t, ns, map[string]string{"refuse": ns}, group, "ipaddresses", addressProbe(group, ns), opCreate)
		return made(t, many(n, func(name string) client.Object { return claim(ns, name) })), func() { drop(t, binding) }
	}
}

// statusRefused has status writes refused, which probe is made to be tried with.
func statusRefused(t *testing.T, ns, group, resource string, probe client.Object) (end func()) {
	t.Helper()
	suite.Create(t, admin, probe)
	binding := forbid(t, ns, map[string]string{"refuse": ns}, group, resource+"/status", patches(probe, true), opUpdate)
	return func() { drop(t, binding) }
}

// pendingRefused has claims stored without an answer, which cannot be written to when
// their pool comes.
func pendingRefused(group, resource string, claim func(ns, name string) client.Object, pool func(ns string) client.Object) func(*testing.T, string, int) ([]client.Object, func()) {
	return func(t *testing.T, ns string, n int) ([]client.Object, func()) {
		all := made(t, many(n, func(name string) client.Object { return claim(ns, name) }))
		binding := forbid(t, ns, map[string]string{"refuse": ns}, group, resource, patches(all[0], false), opUpdate)
		suite.Create(t, admin, pool(ns))
		return all, func() { drop(t, binding) }
	}
}

// askBefore has a webhook refuse operations on objects of a namespace with a code, in
// other words each time.
func askBefore(t *testing.T, ns, resource, group string, code int32, operations ...admissionregistrationv1.OperationType) (end func()) {
	t.Helper()
	var asked atomic.Int64
	at := suite.RespondingWebhook(t, func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: fmt.Sprintf("refused for the time no. %d", asked.Add(1))}}
	})
	hook := suite.RegisterWebhook(t, admin, ns, at, fmt.Sprintf("object.metadata.?labels.?refuse.orValue('') == %q", ns), suite.RulesFor(operations, resource, group))
	time.Sleep(2 * time.Second) // the API server reads webhook configurations about once a second
	return func() { drop(t, hook) }
}

// become waits until all objects are as they should be, or gone.
func become(t *testing.T, in time.Duration, all []client.Object, served func(client.Object) bool) {
	t.Helper()
	left := slices.Clone(all)
	suite.Eventually(t, in, func(ctx context.Context) error {
		left = slices.DeleteFunc(left, func(o client.Object) bool {
			err := admin.Get(ctx, client.ObjectKeyFromObject(o), o)
			return client.IgnoreNotFound(err) == nil && (err != nil || served(o))
		})
		if len(left) > 0 {
			return fmt.Errorf("%d of %d are not served, such as %+v", len(left), len(all), left[0])
		}
		return nil
	})
}

// latency is how long a namespace without refused writes waits: the median of claims that
// are created one after the other.
func latency(t *testing.T, cidr, address string) (allocated, named time.Duration) {
	t.Helper()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "pool", cidr), ipPool(ns, "pool", address+".1", address+".200"))
	times := map[string][]time.Duration{}
	for i := range 15 {
		for what, o := range map[string]client.Object{"allocation": allocation(ns, "pool", fmt.Sprint("a-", i)), "claim": ipClaim(ns, "pool", fmt.Sprint("c-", i))} {
			began := time.Now()
			suite.Create(t, admin, o)
			become(t, time.Minute, []client.Object{o}, isReady)
			times[what] = append(times[what], time.Since(began))
		}
	}
	median := func(all []time.Duration) time.Duration { slices.Sort(all); return all[len(all)/2] }
	return median(times["allocation"]), median(times["claim"])
}

// logged is how many bytes the manager has logged.
func logged(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(cluster.Managers()[0].LogPath())
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// BACKOFF_SETTLE=5m BACKOFF_WINDOW=1m is the whole test; the default sees the pauses
// grow.
func duration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	t.Helper()
	if os.Getenv(name) == "" {
		return otherwise
	}
	d, err := time.ParseDuration(os.Getenv(name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDeniedWrites(t *testing.T) {
	t.Parallel()
	settle, window := duration(t, "BACKOFF_SETTLE", 26*time.Second), duration(t, "BACKOFF_WINDOW", 30*time.Second)
	allocatedBefore, namedBefore := latency(t, "10.1.0.0/24", "10.1.0")
	type refusedKind struct {
		kind
		ns      string
		objects []client.Object
		end     func()
	}
	var all []refusedKind
	began, logBegan := time.Now(), logged(t)
	for _, k := range kinds {
		if only := os.Getenv("BACKOFF_ONLY"); only != "" && !strings.Contains(k.name, only) {
			continue
		}
		ns := suite.CreateNamespace(t, admin)
		objects, end := k.refuse(t, ns, claims)
		all = append(all, refusedKind{k, ns, objects, end})
	}
	made := time.Now()
	t.Logf("made after %s", made.Sub(began))
	for _, k := range all { // a test in which nothing is refused would see nothing
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			refusals := 0
			for _, c := range calls(t, began) {
				if (c.namespace == k.ns || strings.Contains(c.name, k.ns)) && 400 <= c.code && c.code < 500 {
					refusals++
				}
			}
			if refusals < claims {
				return fmt.Errorf("%s: only %d calls were refused", k.name, refusals)
			}
			return nil
		})
	}
	time.Sleep(time.Until(made.Add(settle / 2)))
	allocated, named := latency(t, "10.2.0.0/24", "10.2.0")
	time.Sleep(time.Until(made.Add(settle))) // the test is about a time without events
	if perMinute := float64(logged(t)-logBegan) / time.Since(began).Minutes() / 1e6; perMinute > 1 {
		t.Errorf("the log grows by %.2f MB a minute", perMinute)
	}
	from, logFrom := time.Now(), logged(t)
	time.Sleep(window)
	to := time.Now()
	logTo := logged(t)
	t.Logf("log: %d bytes in the first %s, %d in the last %s", logFrom-logBegan, from.Sub(began).Round(time.Second), logTo-logFrom, to.Sub(from).Round(time.Second))
	if logTo-logFrom > 100_000 {
		t.Errorf("the log has grown by %d bytes in %s", logTo-logFrom, window)
	}
	seen := calls(t, began)
	for _, k := range all {
		total, _ := within(seen, k.ns, began, to)
		n, what := within(seen, k.ns, from, to)
		t.Logf("%-45s %5d calls in all, %3d in the last %s: %v", k.name, total, n, window, what)
		limit := 2 * claims
		if settle < 5*time.Minute { // the message may be among them, the sixteenth time
			limit *= 2
		}
		if n > limit {
			t.Errorf("%s: %d calls in %s for %d claims, want %d at most: %v", k.name, n, window, claims, limit, what)
		}
	}
	// The cause ends.
	for _, k := range all {
		k.end()
	}
	ended := time.Now()
	for _, k := range all {
		become(t, time.Until(ended.Add(longest+slack)), k.objects, k.served)
		t.Logf("%-45s served %s after the cause has ended", k.name, time.Since(ended).Round(time.Millisecond))
	}
	// The denied writes are compared with the time before and the time after: other
	// processes of the machine may be busy at one of them.
	allocatedAfter, namedAfter := latency(t, "10.3.0.0/24", "10.3.0")
	t.Logf("allocation ready in %s before, %s during, %s after the denied writes; claim named in %s, %s, %s", allocatedBefore, allocated, allocatedAfter, namedBefore, named, namedAfter)
	if limit := 2*max(allocatedBefore, allocatedAfter) + 100*time.Millisecond; allocated > limit {
		t.Errorf("allocations of another namespace are ready after %s, want %s at most", allocated, limit)
	}
	if limit := 2*max(namedBefore, namedAfter) + 100*time.Millisecond; named > limit {
		t.Errorf("claims of another namespace have their address after %s, want %s at most", named, limit)
	}
}

// The edit of a pool may end the cause of what is refused for claims of that pool, and of
// those alone.
func TestPoolUpdate_RetriesOnlyItsOwnClaims(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, ipPool(ns, "own", "10.0.0.1", "10.0.0.50"), ipPool(ns, "other", "10.0.1.1", "10.0.1.50"))
	forbid(t, ns, map[string]string{"refuse": ns}, "ipam.metal3.io", "ipaddresses", addressProbe("ipam.metal3.io", ns), opCreate)
	suite.Create(t, admin, ipClaim(ns, "own", "a"), ipClaim(ns, "other", "b"))
	attempts := func(pool string, from time.Time) (n int) {
		for _, c := range calls(t, from) {
			if c.namespace == ns && c.verb == "create" && c.resource == "ipaddresses" && strings.HasPrefix(c.name, pool+"-") {
				n++
			}
		}
		return n
	}
	began := time.Now()
	suite.Eventually(t, time.Minute, func(context.Context) error { // the next pause is of 12.8 s
		if attempts("own", began) < 8 || attempts("other", began) < 8 {
			return errors.New("the pauses are short yet")
		}
		return nil
	})
	edited := time.Now()
	suite.Change(t, admin, ipPool(ns, "own", "", ""), func(p *metal3v1.IPPool) { p.Spec.Prefix = 25 })
	suite.Eventually(t, 10*time.Second, func(context.Context) error {
		if attempts("own", edited) == 0 {
			return errors.New("nothing is attempted for the claims of the pool that was edited")
		}
		return nil
	})
	time.Sleep(3 * time.Second)
	if n := attempts("other", edited); n > 1 {
		t.Errorf("%d attempts for the claim of another pool", n)
	}
	if n := attempts("own", edited); n > 2 {
		t.Errorf("%d attempts for the claim of the pool that was edited", n)
	}
}
