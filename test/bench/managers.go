package main

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/sandbox"
)

// leader returns the running manager that is the leader according to the Lease, nil if
// there is none.
func (b *bench) leader(ctx context.Context) (*sandbox.Manager, error) {
	var lease coordinationv1.Lease
	if err := b.setup.Get(ctx, types.NamespacedName{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}, &lease); err != nil {
		return nil, err
	}
	address := journal.AddressOf(ptr.Deref(lease.Spec.HolderIdentity, ""))
	for _, m := range b.sandbox.Managers() {
		if m.PeerAddress == address && running(m) {
			return m, nil
		}
	}
	return nil, nil
}

// awaitLeader waits until one of these managers is the leader.
func (b *bench) awaitLeader(ctx context.Context, among ...*sandbox.Manager) (*sandbox.Manager, error) {
	var is *sandbox.Manager
	err := await(ctx, func(ctx context.Context) (err error) {
		if is, err = b.leader(ctx); err != nil {
			return err
		}
		for _, m := range among {
			if m == is {
				return nil
			}
		}
		return errors.New("none of the managers is the leader")
	})
	return is, err
}

// followers returns the running managers except the leader.
func (b *bench) followers(leader *sandbox.Manager) []*sandbox.Manager {
	var others []*sandbox.Manager
	for _, m := range b.sandbox.Managers() {
		if m != leader && running(m) {
			others = append(others, m)
		}
	}
	return others
}

func running(m *sandbox.Manager) bool {
	select {
	case <-m.Exited():
		return false
	default:
		return true
	}
}

// end ends managers as a rollout does.
func end(ctx context.Context, managers ...*sandbox.Manager) error {
	for _, m := range managers {
		if running(m) {
			if err := m.Terminate(); err != nil {
				return err
			}
		}
	}
	for _, m := range managers {
		if err := m.Wait(ctx); err != nil {
			return fmt.Errorf("%s did not end well: %w", m.Name(), err)
		}
	}
	return nil
}

// start starts managers that have ended, and returns when they serve.
func start(ctx context.Context, managers ...*sandbox.Manager) error {
	for _, m := range managers {
		if err := m.Start(); err != nil {
			return err
		}
	}
	for _, m := range managers {
		if err := m.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}
