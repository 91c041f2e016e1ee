package feed

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// names returns and empties what waits in a queue.
func names(q flow.Queue) (all []string) {
	for q.Len() > 0 {
		req, _ := q.Get()
		q.Done(req)
		all = append(all, req.Name)
	}
	slices.Sort(all)
	return all
}

func TestChanges_Notify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewChanges()
		c.AddQueues("claims", "pools", []string{"pools", "others"})
		c.AddQueues("guests", "", []string{"pools"})
		own, guests := c.QueuesOf("claims"), c.QueuesOf("guests")
		for _, q := range []flow.Queue{own.Claims, own.Pools, own.Waiting["pools"], own.Waiting["others"], guests.Claims, guests.Waiting["pools"]} {
			defer q.ShutDown()
		}
		expect := func(what string, q flow.Queue, want ...string) {
			t.Helper()
			if got := names(q); !slices.Equal(got, want) {
				t.Errorf("%s: queued %q, want %q", what, got, want)
			}
		}
		c.Notify([]ledger.Key{{Resource: "claims", Name: "a"}, {Resource: "pools", Name: "p"}, {Resource: "others", Name: "o"}, {Resource: "unknown", Name: "u"}})
		time.Sleep(changeDelay)
		synctest.Wait()
		expect("claims", own.Claims, "a")
		expect("pools of the API", own.Pools, "p")
		expect("claims of another API", guests.Claims)
		expect("waiting claims before retryDelay", own.Waiting["pools"])
		time.Sleep(retryDelay)
		synctest.Wait()
		expect("claims that wait for the API's pool", own.Waiting["pools"], "p")
		expect("claims that wait for another API's pool", own.Waiting["others"], "o")
		expect("claims of another API that wait for the pool", guests.Waiting["pools"], "p")
	})
}

func TestQueues_IsRetrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewChanges()
		c.AddQueues("claims", "", nil)
		q, pool := c.QueuesOf("claims"), ledger.Key{Resource: "pools", Name: "p"}
		defer q.Claims.ShutDown()
		expect := func(when string, want bool) {
			t.Helper()
			if got := q.IsRetrying(pool); got != want {
				t.Errorf("%s: retrying %t, want %t", when, got, want)
			}
		}
		expect("before", false)
		q.BeginRetry(pool)
		expect("during", true)
		q.EndRetry(pool)
		expect("after", false)
		q.BeginRetry(pool)
		time.Sleep(retryLimit)
		expect("after the limit", false)
	})
}
