// Package history tests that the log of the managers contains each allocation and each release, while leaders are killed.
package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const seed = 7

// number returns an environment variable, or a default.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// Random claims of all kinds are created and deleted, and the leader is killed again and again. The log has the allocation and the release of each claim that
// was Ready, with its address; HISTORY_OPERATIONS and HISTORY_KILLS make the test longer.
func TestHistory_IsComplete(t *testing.T) {
	suite.SkipShort(t)
	operations, kills := number(t, "HISTORY_OPERATIONS", 600), number(t, "HISTORY_KILLS", 3)
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 3, ClusterAPI: true, Restart: true})
	type life struct {
		kind, namespace, name, uid, address string
		released                            bool
	}
	var mu sync.Mutex
	lives := map[string]*life{} // by UID; only claims that were Ready
	var clients sync.WaitGroup
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, c)
		suite.Create(t, c, kind.Pool(ns, fmt.Sprintf("10.%d.0.0", 60+n), fmt.Sprintf("10.%d.1.199", 60+n)))
		clients.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			var stored []client.Object
			for i := range operations / len(suite.Kinds) {
				if len(stored) > 0 && random.IntN(2) == 0 {
					victim := random.IntN(len(stored))
					o := stored[victim]
					stored[victim] = stored[len(stored)-1]
					stored = stored[:len(stored)-1]
					suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, o)) })
					suite.AwaitGone(t, c, o)
					mu.Lock()
					lives[string(o.GetUID())].released = true
					mu.Unlock()
					continue
				}
				o := kind.Claim(ns, fmt.Sprintf("claim-%d", i), "")
				if o.GetNamespace() == "" {
					o.SetName(ns + "-" + o.GetName())
				}
				suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return c.Create(ctx, o) })
				suite.AwaitObject(t, c, o, func(o client.Object) string {
					if !kind.Bound(o) {
						return "not bound"
					}
					return ""
				})
				mu.Lock()
				lives[string(o.GetUID())] = &life{kind.Name, o.GetNamespace(), o.GetName(), string(o.GetUID()), kind.Address(o), false}
				mu.Unlock()
				stored = append(stored, o)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		clients.Wait()
		close(finished)
	}()
	for n := range kills {
		select {
		case <-finished:
			t.Logf("the operations ended before kill %d", n)
		case <-time.After(6 * time.Second):
		}
		killLeader(t, s, c)
	}
	<-finished

	path := filepath.Join(t.TempDir(), "manager.log")
	var history inventory.History
	suite.Eventually(t, suite.Soon, func(context.Context) error { // lines follow the events
		var all bytes.Buffer
		for _, m := range s.Managers() {
			text, err := os.ReadFile(m.LogPath())
			if err != nil {
				return err
			}
			all.Write(text)
		}
		if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
			return err
		}
		var err error
		if history, err = inventory.ReadHistory(&all); err != nil {
			return err
		}
		events := map[string]int{}
		for _, r := range history {
			events[r.Event+r.UID]++
		}
		for uid, l := range lives {
			if events[inventory.EventAllocated+uid] == 0 {
				return fmt.Errorf("%s %s/%s was allocated %s: the log lacks it", l.kind, l.namespace, l.name, l.address)
			}
			if l.released && events[inventory.EventReleased+uid] == 0 {
				return fmt.Errorf("%s %s/%s was released: the log lacks it", l.kind, l.namespace, l.name)
			}
			if !l.released && events[inventory.EventReleased+uid] > 0 {
				return fmt.Errorf("%s %s/%s is stored, and the log has its release", l.kind, l.namespace, l.name)
			}
		}
		return nil
	})
	t.Logf("%d claims, %d records", len(lives), len(history))
	if len(lives) < operations/5 {
		t.Errorf("only %d claims: the test shows nothing", len(lives))
	}

	asked := 0
	for _, l := range lives { // who answers for each kind
		if asked++; asked > 25 {
			break
		}
		out, err := exec.CommandContext(t.Context(), "../../bin/kubectl-ipam", "who", l.address, "--log", path, "-o", "json").Output()
		if err != nil {
			t.Fatalf("who %s: %v", l.address, err)
		}
		var answer struct {
			Items []struct{ UID, From, Until string }
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, tenure := range answer.Items {
			found = found || tenure.UID == l.uid && tenure.From != "" && (tenure.Until != "") == l.released
		}
		if !found {
			t.Errorf("who %s does not name %s %s/%s: %s", l.address, l.kind, l.namespace, l.name, out)
		}
	}
}

// killLeader kills the leader, which is restarted.
func killLeader(t *testing.T, s *sandbox.Sandbox, c client.Client) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		var lease coordinationv1.Lease
		if err := c.Get(ctx, client.ObjectKey{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}, &lease); err != nil {
			return err
		}
		for _, m := range s.Managers() {
			if journal.AddressOf(ptr.Deref(lease.Spec.HolderIdentity, "")) == m.PeerAddress {
				return m.Kill()
			}
		}
		return errors.New("no manager leads")
	})
}
