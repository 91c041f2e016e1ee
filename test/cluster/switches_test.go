//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/load"
)

const vip = `
apiVersion: novaedge.io/v1alpha1
kind: ProxyVIP
metadata:
  name: first
spec:
  address: 198.51.100.7
  mode: L2ARP
  ports: [443]
`

// onlyRead fails the test where more of a group that is off is there than the manager's
// right to read it.
func onlyRead(t *testing.T) {
	t.Helper()
	if strings.Contains(kubectl(t, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--selector=app.kubernetes.io/instance="+release, "--output=yaml"), "novaedge.io") {
		t.Error("a group that is off has webhooks")
	}
	for _, g := range granted(t) {
		if g.group == "novaedge.io" && !slices.Contains([]string{"get", "list", "watch"}, g.verb) {
			t.Errorf("a group that is off: granted is %s", g)
		}
	}
}

// switchOff is the upgrade that turns the group off.
func switchOff() []string {
	return append([]string{"upgrade", release, "--namespace=" + namespace, "--wait", "--timeout=2m"}, withValues()...)
}

// switches turns an API group on under a running manager, and off again, which Helm
// refuses as long as objects of it are stored.
func switches(t *testing.T) {
	onlyRead(t)
	helm(t, "upgrade", withValues("apis.novaedge=true")...)
	until(t, "the webhooks of the group", func() error {
		_, err := create(t, vip)
		return err
	})
	if grant := kubectl(t, "get", "proxyvip/first", "--output=jsonpath={.metadata.annotations}"); !strings.Contains(grant, "grant") {
		t.Errorf("the VIP is stored with annotations %s", grant)
	}

	off := switchOff()
	_, err := try(t, "", "helm", off...)
	if err == nil || !strings.Contains(err.Error(), "apis.novaedge cannot be switched off while objects of novaedge.io exist: 1 of kind ProxyVIP") {
		t.Errorf("switched off while an object is stored: %v", err)
	}
	kubectl(t, "delete", "proxyvip/first", "--timeout=30s")
	must(t, "", "helm", off...)
	onlyRead(t)
	if _, err := create(t, vip); err != nil { // which nothing answers now, and so it is stored as it is
		t.Error(err)
	}
	if stored := kubectl(t, "get", "proxyvip/first", "--output=jsonpath={.metadata.annotations}"); stored != "" {
		t.Errorf("with the group off a VIP was answered: %s", stored)
	}
	must(t, "", "helm", off...) // what is stored under a group that is off stands in the way of nothing
	kubectl(t, "delete", "proxyvip/first", "--timeout=30s")
}

// rounds is how many times the group is switched on and off while objects of it are
// created and deleted all the time.
const rounds = 20

// switchesAgain switches the group on and off in a row. In every second of it ProxyVIPs
// and IPAllocations are created and deleted: of the latter no create may fail, and none
// may wait for long.
func switchesAgain(t *testing.T) {
	var (
		churn              sync.WaitGroup
		allocated, granted atomic.Int64
		slowest            atomic.Int64
	)
	pool := load.NewPool(t, admin, nextNetwork())
	ctx, stop := context.WithCancel(t.Context())
	repeat := func(create func(ctx context.Context, i int) client.Object) {
		for i := 0; ctx.Err() == nil; i++ {
			if o := create(context.WithoutCancel(ctx), i); o != nil {
				_ = journal.Pause(ctx, 50*time.Millisecond)
				if err := client.IgnoreNotFound(admin.Delete(context.WithoutCancel(ctx), o)); err != nil {
					t.Errorf("delete of %s: %v", o.GetName(), err)
				}
			}
			_ = journal.Pause(ctx, 100*time.Millisecond)
		}
	}
	churn.Go(func() {
		repeat(func(ctx context.Context, i int) client.Object {
			a, began := load.Claim(pool, fmt.Sprintf("churn-%d", i)), time.Now()
			if err := admin.Create(ctx, a); err != nil || a.Spec.PinnedRange == nil {
				t.Errorf("a create of an IPAllocation got %v: %v", a.Spec.PinnedRange, err)
				return nil
			}
			allocated.Add(1)
			slowest.Store(max(slowest.Load(), int64(time.Since(began))))
			return a
		})
	})
	churn.Go(func() {
		repeat(func(ctx context.Context, i int) client.Object {
			v := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "novaedge.io/v1alpha1", "kind": "ProxyVIP", "metadata": map[string]any{"name": fmt.Sprintf("churn-%d", i)},
				"spec": map[string]any{"address": fmt.Sprintf("198.51.100.%d", 1+i%200), "mode": "L2ARP", "ports": []any{int64(443)}},
			}}
			if err := admin.Create(ctx, v); err != nil { // while pods that serve it are yet to come, or have gone
				return nil
			}
			if v.GetAnnotations()["butler.butlerlabs.dev/grant"] != "" {
				granted.Add(1)
			}
			return v
		})
	})
	grows := func(what string, count *atomic.Int64) {
		t.Helper()
		from := count.Load()
		until(t, what, func() error {
			if now := count.Load(); now < from+5 {
				return fmt.Errorf("%d of 5 more", now-from)
			}
			return nil
		})
	}
	for range rounds {
		helm(t, "upgrade", withValues("apis.novaedge=true")...)
		grows("ProxyVIPs with addresses", &granted)
		until(t, "a moment without a ProxyVIP", func() error {
			_, err := try(t, "", "helm", switchOff()...)
			return err
		})
		grows("IPAllocations with addresses", &allocated)
	}
	settled(t)
	stop()
	churn.Wait()
	t.Logf("%d IPAllocations and %d ProxyVIPs in %d rounds; the slowest IPAllocation took %s", allocated.Load(), granted.Load(), rounds, time.Duration(slowest.Load()))
	if time.Duration(slowest.Load()) > 20*time.Second {
		t.Error("an IPAllocation waited for longer than one rollout")
	}
	kubectl(t, "delete", "proxyvips", "--all", "--timeout=30s")
	onlyRead(t)
}
