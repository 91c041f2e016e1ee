package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	stockNamespace = "stock"
	// parallel is how many writes are under way that prepare a measurement.
	parallel = 8
	// perTransaction is how many objects one write to etcd stores.
	perTransaction = 100
	storage        = "/registry/butler.butlerlabs.dev/"
)

// stock is allocations that are stored: each of some pools has as many.
type stock struct{ pools, each int }

func (s stock) String() string {
	return fmt.Sprintf("%d stored in %d pool(s)", s.pools*s.each, s.pools)
}

func (s stock) poolName(i int) string { return fmt.Sprintf("pool-%04d", i) }

// block is the network of a pool: with room for twice as many, beside that of the one
// before.
func (s stock) block(i int) netip.Prefix {
	bits := 32
	for 1<<(32-bits) < 2*s.each {
		bits--
	}
	return netip.PrefixFrom(nth(netip.MustParseAddr("100.64.0.0"), i<<(32-bits)), bits)
}

// nth is the address so many after another.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	for i := len(b) - 1; i >= 0; i-- {
		n += int(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	return netip.AddrFrom4(b)
}

// createPools has the managers make the pools, and one allocation: the first address of
// the first pool.
func (b *bench) createPools(ctx context.Context, s stock) (*v1alpha1.IPAllocation, error) {
	if err := b.setup.Create(ctx, (&collection{namespace: stockNamespace}).namespaceObject()); err != nil {
		return nil, err
	}
	var creates errgroup.Group
	creates.SetLimit(parallel)
	for i := range s.pools {
		creates.Go(func() error {
			return b.setup.Create(ctx, &v1alpha1.NetworkPool{
				ObjectMeta: metav1.ObjectMeta{Name: s.poolName(i), Namespace: stockNamespace},
				Spec:       v1alpha1.NetworkPoolSpec{CIDR: s.block(i).String()},
			})
		})
	}
	if err := creates.Wait(); err != nil {
		return nil, err
	}
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "allocation-0-0", Namespace: stockNamespace}}
	if err := json.Unmarshal([]byte(claim), &a.Spec); err != nil {
		return nil, err
	}
	a.Spec.PoolRef.Name = s.poolName(0)
	if err := b.setup.Create(ctx, a); err != nil {
		return nil, err
	}
	if first := s.block(0).Addr().String(); a.Spec.PinnedRange.StartAddress != first {
		return nil, fmt.Errorf("the first allocation got %s, want %s", a.Spec.PinnedRange.StartAddress, first)
	}
	return a, await(ctx, func(ctx context.Context) error {
		if err := b.setup.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return err
		}
		if a.Status.Phase != v1alpha1.PhaseAllocated {
			return errors.New("the first allocation is not Ready")
		}
		return nil
	})
}

// seed stores copies of an allocation until there are as many as the stock says. They are
// what the managers would have stored, and are written into etcd as the API server would
// have: through it, the same would take a quarter of an hour. No manager may run.
func (b *bench) seed(ctx context.Context, s stock, first *v1alpha1.IPAllocation) error {
	key := func(name string) string { return storage + "ipallocations/" + stockNamespace + "/" + name }
	model, err := get(ctx, b.etcd, key(first.Name))
	if err != nil {
		return err
	}
	writes, ctx := errgroup.WithContext(ctx)
	writes.SetLimit(parallel)
	batch := map[string][]byte{}
	flush := func() {
		full := batch
		batch = map[string][]byte{}
		writes.Go(func() error { return put(ctx, b.etcd, full) })
	}
	for pool := range s.pools {
		for i := range s.each {
			if pool == 0 && i == 0 {
				continue // the first itself
			}
			name := fmt.Sprintf("allocation-%d-%d", pool, i)
			value, err := copied(model, name, s.poolName(pool), nth(s.block(pool).Addr(), i))
			if err != nil {
				return err
			}
			if batch[key(name)] = value; len(batch) == perTransaction {
				flush()
			}
		}
	}
	flush()
	return writes.Wait()
}

// digested waits until the API server's own cache has what etcd has, which takes it most
// of a minute for the largest stock.
func (b *bench) digested(ctx context.Context, revision int64) error {
	c := &collection{subject: alloc, namespace: stockNamespace}
	return await(ctx, func(ctx context.Context) error {
		return b.raw.Get().AbsPath(c.path()).Param("limit", "1").Param("resourceVersionMatch", "NotOlderThan").
			Param("resourceVersion", strconv.FormatInt(revision, 10)).Do(ctx).Error()
	})
}

// copied is a stored allocation with another name, UID, token, pool and address.
func copied(model []byte, name, pool string, address netip.Addr) ([]byte, error) {
	var a v1alpha1.IPAllocation
	if err := json.Unmarshal(model, &a); err != nil {
		return nil, err
	}
	var token journal.Token
	_, _ = rand.Read(token[:]) // never fails
	a.Name, a.UID, a.Spec.PoolRef.Name = name, uuid.NewUUID(), pool
	a.Labels[v1alpha1.LabelNetworkPool] = pool
	a.Annotations[v1alpha1.AnnotationGrant] = token.String()
	r := allocator.Range{First: address, Last: address}
	a.Spec.PinnedRange = butler.FormatPinnedRange(r)
	a.Status.CIDR, a.Status.StartAddress, a.Status.EndAddress = butler.FormatCIDR(r), address.String(), address.String()
	a.Status.Addresses = []string{address.String()}
	a.Status.Conditions[0].Message = "1 IP allocated from " + pool
	return json.Marshal(a)
}

// counted waits until every pool counts what it holds.
func (b *bench) counted(ctx context.Context, s stock) error {
	return await(ctx, func(ctx context.Context) error {
		var pools v1alpha1.NetworkPoolList
		if err := b.setup.List(ctx, &pools, client.InNamespace(stockNamespace)); err != nil {
			return err
		}
		for _, p := range pools.Items {
			if p.Status.AllocatedIPs != int64(s.each) || p.Status.AllocationCount != int64(s.each) {
				return fmt.Errorf("%s counts %d addresses of %d allocations, want %d", p.Name, p.Status.AllocatedIPs, p.Status.AllocationCount, s.each)
			}
		}
		if len(pools.Items) != s.pools {
			return fmt.Errorf("%d pools are stored, want %d", len(pools.Items), s.pools)
		}
		return nil
	})
}
