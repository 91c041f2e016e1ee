package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/plane"
	"butlerlabs.dev/ipam/test/sandbox"
)

// tenantGroup is TenantClusters of one manager: some with control planes of their own,
// the others at an address where nobody answers.
type tenantGroup struct {
	all, real int
}

func (g tenantGroup) memory() string {
	return fmt.Sprintf("memory of the manager, %d tenants of which %d answer", g.all, g.real)
}
func (g tenantGroup) growth() string {
	return fmt.Sprintf("Service to address beyond the pool, %d tenants of which %d answer", g.all, g.real)
}
func (g tenantGroup) rest() string {
	return fmt.Sprintf("calls at rest, %d tenants of which %d answer", g.all, g.real)
}

// restAfter is how long the tenants that do not answer have been away when calls are
// counted, restTime for how long that is.
const (
	restAfter = 90 * time.Second
	restTime  = time.Minute
)

// measureTenants measures one manager with many tenants.
func measureTenants(ctx context.Context, o options) ([]figure, error) {
	g := o.tenants
	if !o.only.MatchString(g.memory()) && !o.only.MatchString(g.growth()) && !o.only.MatchString(g.rest()) {
		return nil, nil
	}
	return onSandbox(ctx, 1, func(b *bench) (figures []figure, err error) {
		var planes []*plane.Plane
		defer func() {
			for _, p := range planes {
				err = errors.Join(err, p.Stop())
			}
		}()
		empty, err := footprintOf(ctx, b.sandbox.Managers()[0])
		if err != nil {
			return nil, err
		}
		clusters, err := b.createTenants(ctx, g.all)
		if err != nil {
			return nil, err
		}
		unreachable, err := nobody()
		if err != nil {
			return nil, err
		}
		for i, c := range clusters {
			config := unreachable
			if i < g.real {
				p, err := plane.Start(ctx)
				if err != nil {
					return nil, err
				}
				planes = append(planes, p)
				config = p.Config()
			}
			if _, err := plane.Connect(ctx, b.setup, c, config); err != nil {
				return nil, err
			}
		}
		progress("%d tenants, %d of them answer", g.all, g.real)
		growth := sample{name: g.growth()}
		var times []time.Duration
		for _, p := range planes {
			took, err := grow(ctx, p)
			if err != nil {
				return nil, err
			}
			times = append(times, took)
		}
		growth.n, growth.p50 = len(times), median(times)
		if err := pause(ctx, restAfter); err != nil {
			return nil, err
		}
		before, err := calls(ctx, b.sandbox)
		if err != nil {
			return nil, err
		}
		if err := pause(ctx, restTime); err != nil {
			return nil, err
		}
		after, err := calls(ctx, b.sandbox)
		if err != nil {
			return nil, err
		}
		full, err := footprintOf(ctx, b.sandbox.Managers()[0])
		if err != nil {
			return nil, err
		}
		progress("%s: empty %+v, full %+v", g.memory(), empty, full)
		progress("%s: %.0f a minute to the management cluster's API server, of them %.0f writes, the journal first of all", g.rest(), after.all-before.all, after.writes-before.writes)
		n := float64(g.all)
		return []figure{
			{table: answerTable, Name: g.growth(), Clients: 1, N: growth.n, P50: ms(growth.p50)},
			{table: answerTable, Name: g.rest(), Clients: 1, N: int(after.all - before.all), PerSecond: (after.all - before.all) / restTime.Seconds()},
			{table: memoryTable, Name: g.memory(), N: g.all,
				HeapBytes: float64(full.heap-empty.heap) / n, ResidentBytes: float64(full.resident-empty.resident) / n, PeakBytes: float64(full.peak-empty.resident) / n},
		}, nil
	}, func(s *sandbox.Options) {
		s.Tenants, s.ManagerArgs = true, []string{"--tenants"}
	})
}

func pause(ctx context.Context, long time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(long):
		return nil
	}
}

// createTenants stores a pool, a provider and its tenants, and returns when all have
// their addresses.
func (b *bench) createTenants(ctx context.Context, n int) ([]*v1alpha1.TenantCluster, error) {
	pool := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: "tenants"}, Spec: v1alpha1.NetworkPoolSpec{CIDR: "10.128.0.0/16"}}
	provider := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: "tenants"}, Spec: v1alpha1.ProviderConfigSpec{
		Provider: "harvester", Network: &v1alpha1.ProviderNetwork{
			Mode: v1alpha1.NetworkModeIPAM, PoolRefs: []v1alpha1.PoolReference{{Name: pool.Name}},
			LoadBalancer: &v1alpha1.ProviderLoadBalancer{AllocationMode: v1alpha1.LBAllocationElastic, InitialPoolSize: ptr.To[int32](2)},
		},
	}}
	for _, o := range []client.Object{pool, provider} {
		if err := b.setup.Create(ctx, o); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	clusters := make([]*v1alpha1.TenantCluster, n)
	for i := range clusters {
		clusters[i] = &v1alpha1.TenantCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("tenant-%d", i)},
			Spec:       v1alpha1.TenantClusterSpec{ProviderConfigRef: &v1alpha1.ProviderReference{Name: provider.Name, Namespace: provider.Namespace}},
		}
		if err := b.setup.Create(ctx, clusters[i]); err != nil {
			return nil, err
		}
	}
	for _, c := range clusters {
		if err := await(ctx, func(ctx context.Context) error {
			if err := b.setup.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionNetworkReady) {
				return fmt.Errorf("tenant %s has no addresses", c.Name)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	progress("%d tenants had their addresses after %.1f s", n, time.Since(began).Seconds())
	return clusters, nil
}

// nobody is a client configuration that is in order, of an API server that is not there.
func nobody() (*rest.Config, error) {
	authority, err := pki.New("nobody")
	if err != nil {
		return nil, err
	}
	certificate, key, err := authority.Client("admin")
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: "https://127.0.0.1:9", TLSClientConfig: rest.TLSClientConfig{CAData: authority.PEM, CertData: certificate, KeyData: key}}, nil
}

// grow uses up what a tenant has, and says how long one more Service takes from its
// creation to its address.
func grow(ctx context.Context, p *plane.Plane) (time.Duration, error) {
	var took time.Duration
	for i := range 3 {
		s := plane.Balancer("balancer-" + strconv.Itoa(i))
		began := time.Now()
		if err := p.Client.Create(ctx, s); err != nil {
			return 0, err
		}
		if err := await(ctx, func(ctx context.Context) error { return addressed(ctx, p, s) }); err != nil {
			return 0, err
		}
		took = time.Since(began)
	}
	return took, nil
}

func addressed(ctx context.Context, p *plane.Plane, s *corev1.Service) error {
	_, err := p.Address(ctx, s)
	return err
}

// counted is calls of the manager to the API server of the management cluster, those
// among them that write whole objects, as the journal.
type counted struct{ all, writes float64 }

// calls reads what the manager's client has counted.
func calls(ctx context.Context, s *sandbox.Sandbox) (n counted, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Managers()[0].MetricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return n, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return n, err
	}
	defer response.Body.Close()
	host := strings.TrimPrefix(s.Config().Host, "https://")
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "rest_client_requests_total{") || !strings.Contains(line, `host="`+host+`"`) {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
		if err != nil {
			return n, fmt.Errorf("%s: %w", line, err)
		}
		n.all += value
		if strings.Contains(line, `method="PUT"`) {
			n.writes += value
		}
	}
	return n, lines.Err()
}
