// Package history tests that the log of the managers, and their AllocationHistories, contain each allocation and each release, while leaders are killed.
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
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
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

// life is a claim that was Ready.
type life struct {
	kind, namespace, name, uid, address string
	bound, deleted                      time.Time // when the test observed the claim as Ready, and when it deleted the claim
	released                            bool
}

// Random claims of all kinds are created and deleted, and the leader is killed again and again. The log and the AllocationHistories each have the allocation and the
// release of each claim that was Ready, with its address; HISTORY_OPERATIONS and HISTORY_KILLS make the test longer.
func TestHistory_IsComplete(t *testing.T) {
	suite.SkipShort(t)
	operations, kills := number(t, "HISTORY_OPERATIONS", 600), number(t, "HISTORY_KILLS", 3)
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 3, ClusterAPI: true, Restart: true, ManagerArgs: []string{"--history-retention-days=30"}})
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
					deleted := time.Now()
					suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, o)) })
					suite.AwaitGone(t, c, o)
					mu.Lock()
					lives[string(o.GetUID())].released, lives[string(o.GetUID())].deleted = true, deleted
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
				lives[string(o.GetUID())] = &life{kind: kind.Name, namespace: o.GetNamespace(), name: o.GetName(), uid: string(o.GetUID()), address: kind.Address(o), bound: time.Now()}
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
	ledAgain := 0
	for n := range kills {
		select {
		case <-finished:
			t.Logf("the operations ended before kill %d", n)
		case <-time.After(6 * time.Second):
		}
		if killLeader(t, s, c, n%2 == 1) {
			ledAgain++
		}
	}
	<-finished
	t.Logf("%d of %d killed leaders led again at once", ledAgain, kills)

	if len(lives) < operations/5 {
		t.Errorf("only %d claims: the test shows nothing", len(lives))
	}
	path := filepath.Join(t.TempDir(), "manager.log")
	var logged, stored inventory.History
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
		if logged, err = inventory.ReadHistory(&all); err != nil {
			return err
		}
		return isComplete(logged, lives)
	})
	suite.Eventually(t, 3*suite.Soon, func(ctx context.Context) error { // a follower stores the last records of a killed leader after 30 s
		var err error
		if stored, err = readObjects(ctx, c); err != nil {
			return err
		}
		return isComplete(stored, lives)
	})
	t.Logf("%d claims, %d records in the log, %d in the AllocationHistories", len(lives), len(logged), len(stored))

	asked := 0
	for _, l := range lives { // who answers for each kind
		if asked++; asked > 25 {
			break
		}
		requireOwner(t, l, s, "--log", path)
		at := l.deleted
		if !l.released {
			at = time.Now()
		}
		if at.Sub(l.bound) > time.Second {
			requireOwner(t, l, s, "--at", at.UTC().Format(time.RFC3339Nano))
		}
	}
}

// isComplete returns an error if a history lacks an allocation or a release, or has the release of a stored claim.
func isComplete(history inventory.History, lives map[string]*life) error {
	events := map[string]int{}
	for _, r := range history {
		events[r.Event+r.UID]++
	}
	for uid, l := range lives {
		if events[inventory.EventAllocated+uid] == 0 {
			return fmt.Errorf("%s %s/%s was allocated %s: the history lacks it", l.kind, l.namespace, l.name, l.address)
		}
		if l.released && events[inventory.EventReleased+uid] == 0 {
			return fmt.Errorf("%s %s/%s was released: the history lacks it", l.kind, l.namespace, l.name)
		}
		if !l.released && events[inventory.EventReleased+uid] > 0 {
			return fmt.Errorf("%s %s/%s is stored, and the history has its release", l.kind, l.namespace, l.name)
		}
	}
	return nil
}

// readObjects reads the history of the AllocationHistories.
func readObjects(ctx context.Context, c client.Client) (inventory.History, error) {
	var list butlerv1.AllocationHistoryList
	if err := c.List(ctx, &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil {
		return nil, err
	}
	var all []inventory.Record
	for n := range list.Items {
		records, err := inventory.ReadHistoryObject(&list.Items[n])
		if err != nil {
			return nil, err
		}
		if int(list.Items[n].Spec.Count) != len(records) {
			return nil, fmt.Errorf("%s counts %d records, and has %d", list.Items[n].Name, list.Items[n].Spec.Count, len(records))
		}
		all = append(all, records...)
	}
	return inventory.NewHistory(all), nil
}

// requireOwner checks that kubectl ipam who names a claim as the owner of its address.
func requireOwner(t *testing.T, l *life, s *sandbox.Sandbox, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "../../bin/kubectl-ipam", append([]string{"who", l.address, "-o", "json"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	out, err := command.Output()
	if err != nil {
		t.Fatalf("who %s %s: %v", l.address, args, err)
	}
	var answer struct {
		Items []struct{ UID, From, Until string }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatal(err)
	}
	for _, tenure := range answer.Items {
		if tenure.UID == l.uid && tenure.From != "" && (tenure.Until != "") == l.released {
			return
		}
	}
	t.Errorf("who %s %s does not name %s %s/%s: %s", l.address, args, l.kind, l.namespace, l.name, out)
}

// killLeader kills the leader, which is restarted, and reports whether it is the next leader. With freeze, it stops the leader, and kills it when another leads.
func killLeader(t *testing.T, s *sandbox.Sandbox, c client.Client, freeze bool) (ledAgain bool) {
	t.Helper()
	leader := func(ctx context.Context) (string, error) {
		var lease coordinationv1.Lease
		err := c.Get(ctx, client.ObjectKey{Namespace: sandbox.ManagerNamespace, Name: journal.LeaseName}, &lease)
		return ptr.Deref(lease.Spec.HolderIdentity, ""), err
	}
	var killed string
	var victim *sandbox.Manager
	suite.Eventually(t, suite.Soon, func(ctx context.Context) (err error) {
		if killed, err = leader(ctx); err != nil {
			return err
		}
		for _, m := range s.Managers() {
			if victim = m; journal.AddressOf(killed) != m.PeerAddress {
				continue
			}
			if freeze {
				return m.Freeze()
			}
			return m.Kill()
		}
		return errors.New("no manager leads")
	})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		next, err := leader(ctx)
		if err == nil && (next == killed || next == "") {
			err = errors.New("no replica leads since")
		}
		ledAgain = journal.AddressOf(next) == journal.AddressOf(killed)
		return err
	})
	if freeze {
		if err := victim.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	return ledAgain
}
