package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// hangs is the time for which etcd hangs: longer than the life of a grant and than the
// timeout of the API server.
const hangs = 65 * time.Second

// How many late writes there are, and whether one of them meets an address that was given
// anew, is up to etcd: see the other test for those that surely do.
func TestLateCreate_AfterEtcdHung(t *testing.T) {
	c := start(t, sandbox.Options{}, 26)
	hasty := connect(t, c.Sandbox, 10*time.Second)
	stopLoad := c.load(8)
	const owned = 40
	outcomes := c.hold(owned, func(i int) client.Client {
		if i%2 == 0 {
			return hasty
		}
		return c
	})
	go c.gate.pass(owned, 2*time.Millisecond)
	first := <-outcomes // the others are on all parts of their way into etcd
	if err := c.Etcd().Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	failed := failures(first, outcomes, owned)
	time.Sleep(time.Until(frozen.Add(hangs)))
	if err := c.Etcd().Thaw(); err != nil {
		t.Fatal(err)
	}
	stopLoad()
	takers := c.takeAll()
	c.settled()
	adopted, conflicting := c.late(failed)
	t.Logf("of %d creates that failed, etcd has stored %d all the same: %d keep their address, %d are flagged; %d others were given addresses afterwards",
		len(failed), len(adopted)+len(conflicting), len(adopted), len(conflicting), takers)
	if len(adopted)+len(conflicting) == 0 {
		t.Log("no write was late this time")
	}
	c.remove(conflicting)
	c.settled()
}

func TestLateCreate_OfAnAddressAllocatedAgain(t *testing.T) {
	w := &wire{}
	c := start(t, sandbox.Options{EtcdBehind: w.behind}, 28)
	t.Cleanup(func() { w.Close() })
	const (
		owned = 16  // all addresses of the pool
		anew  = 8   // of them
		bytes = 500 // of a write to etcd, at least
	)
	outcomes := c.hold(owned, func(int) client.Client { return c })
	w.hold()
	c.gate.pass(owned, 0)
	suite.Eventually(c.T, patience, func(context.Context) error {
		if kept, quiet := w.kept(); kept < owned*bytes || quiet < time.Second {
			return fmt.Errorf("%d bytes are on their way to etcd, the last of them for %s", kept, quiet)
		}
		return nil
	})
	c.restartAPIServer()
	failed := failures(<-outcomes, outcomes, owned)
	if len(failed) != owned {
		t.Errorf("%d creates succeeded whose writes never reached etcd", owned-len(failed))
	}
	suite.Eventually(c.T, patience, c.noGrants)
	if adopted, conflicting := c.late(failed); len(adopted)+len(conflicting) > 0 {
		t.Fatalf("%d creates were stored before their grants had ended", len(adopted)+len(conflicting))
	}
	for i := range anew {
		if err := c.Create(t.Context(), claim(fmt.Sprintf("anew-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	c.settled()
	if err := w.deliver(); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(c.T, patience, func(ctx context.Context) error {
		all, err := c.stored(ctx)
		if err == nil && len(all) < owned+anew {
			err = fmt.Errorf("%d allocations are stored, want %d", len(all), owned+anew)
		}
		return err
	})
	c.settled()
	adopted, conflicting := c.late(failed)
	if len(adopted) != owned-anew || len(conflicting) != anew {
		t.Errorf("of the late ones, %d keep their address and %d are flagged, want %d and %d", len(adopted), len(conflicting), owned-anew, anew)
	}
	c.remove(conflicting)
	c.settled()
}

// restartAPIServer kills the API server, including all requests under way, and restarts
// it.
func (c *cluster) restartAPIServer() {
	c.Helper()
	server := c.APIServer()
	if err := server.Kill(); err != nil {
		c.Fatal(err)
	}
	_ = server.Wait(c.Context()) // it was killed
	if err := errors.Join(server.Start(), server.Ready(c.Context())); err != nil {
		c.Fatal(err)
	}
}

// load has clients create allocations and delete them again, until the function it gives
// is called. Whether they succeed is their own business.
func (c *cluster) load(clients int) (stop func()) {
	c.Helper()
	hasty := connect(c.T, c.Sandbox, 3*time.Second)
	ctx, cancel := context.WithCancel(c.Context())
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a := claim(fmt.Sprintf("load-%d-%d", id, i))
				_ = hasty.Create(c.Context(), a)
				for client.IgnoreNotFound(hasty.Delete(c.Context(), a)) != nil && c.Context().Err() == nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// takeAll allocates every address that is or becomes free, until no grant is open, and
// returns their number.
func (c *cluster) takeAll() (taken int) {
	c.Helper()
	suite.Eventually(c.T, patience, func(ctx context.Context) error {
		err := c.Create(ctx, claim(fmt.Sprintf("taker-%d", taken)))
		switch {
		case err == nil:
			taken++
			return errors.New("there are free addresses")
		case !apierrors.IsForbidden(err):
			return err
		}
		return c.noGrants(ctx)
	})
	return taken
}
