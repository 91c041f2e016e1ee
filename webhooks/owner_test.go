package webhooks

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// What depends on the pool is denied only after a live read of the pool.
func TestDependsOnPool(t *testing.T) {
	pool := metal3.IPPoolKey("ns", "pool")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), false},
		{&ledger.NoPoolError{Pool: pool}, true},
		{&ledger.PoolError{Pool: pool, Err: &allocator.ExhaustedError{}}, true},
		{&ledger.PoolError{Pool: pool, Err: &ledger.OwnedError{}}, false},
		{&metal3.UnofferedError{Pool: pool, Address: netip.MustParseAddr("10.0.0.9")}, true},
		{fmt.Errorf("%w: an entry is missing", annotated.FailureOutside), true},
		{fmt.Errorf("%w: %w", annotated.FailureUnavailable, &ledger.OwnedError{}), false},
	} {
		if got := dependsOnPool(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
