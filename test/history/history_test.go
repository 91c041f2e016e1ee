// Package history tests that the log of the managers and the AllocationHistories contain
// each allocation and each release, while leaders are killed.
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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/historyrecord"
	"butlerlabs.dev/ipam/allocator/journal"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const seed = 7

// number returns the value of an environment variable, or a default.
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

// clientsPerKind is the number of concurrent clients that create and delete claims of a
// kind.
const clientsPerKind = 4

// life describes a claim that was Ready.
type life struct {
	kind, namespace, name, uid, address string
	bound, deleted                      time.Time // when the test observed Ready, and when the test deleted the claim
	released                            bool
}

// lives contains the life of each claim of the test.
type lives struct {
	c     client.Client
	mu    sync.Mutex
	byUID map[string]*life
}

// create creates a claim and waits until the claim is Ready.
func (l *lives) create(t *testing.T, kind suite.Kind, ns, name string) client.Object {
	t.Helper()
	o := kind.Claim(ns, name, "")
	suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return l.c.Create(ctx, o) })
	suite.AwaitObject(t, l.c, o, func(o client.Object) string {
		if !kind.Bound(o) {
			return "not bound"
		}
		return ""
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	claimKind, _, _ := strings.Cut(kind.Name, "_") // the suite has two kinds of IPAddressClaims, with different suffixes
	l.byUID[string(o.GetUID())] = &life{kind: claimKind, namespace: o.GetNamespace(), name: o.GetName(), uid: string(o.GetUID()), address: kind.Address(o), bound: time.Now()}
	return o
}

// delete deletes a claim and waits until the claim is gone.
func (l *lives) delete(t *testing.T, o client.Object) {
	t.Helper()
	deleted := time.Now()
	suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return client.IgnoreNotFound(l.c.Delete(ctx, o)) })
	suite.AwaitGone(t, l.c, o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byUID[string(o.GetUID())].released, l.byUID[string(o.GetUID())].deleted = true, deleted
}

// awaitLog waits until the log of the managers is complete. It writes the log to a file,
// and returns the number of records in the log.
func (l *lives) awaitLog(t *testing.T, s *sandbox.Sandbox, path string) (logged int) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error { // the managers write log lines after the events
		var text bytes.Buffer
		for _, m := range s.Managers() {
			part, err := os.ReadFile(m.LogPath())
			if err != nil {
				return err
			}
			text.Write(part)
		}
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			return err
		}
		history, err := historyrecord.ReadLog(&text)
		logged = len(history)
		return errors.Join(err, isComplete(history, l.byUID))
	})
	return logged
}

// awaitHistory waits until the log of the managers and the AllocationHistories are
// complete. It writes the log to a file, and returns the numbers of records in the log
// and in the AllocationHistories.
func (l *lives) awaitHistory(t *testing.T, s *sandbox.Sandbox, path string) (logged, stored int) {
	t.Helper()
	logged = l.awaitLog(t, s, path)
	suite.Eventually(t, 3*suite.Soon, func(ctx context.Context) error { // a follower stores the last records of a killed leader after 30 s
		history, err := readObjects(ctx, l.c)
		stored = len(history)
		return errors.Join(err, isComplete(history, l.byUID))
	})
	return logged, stored
}

// The test creates and deletes random claims of each kind, and repeatedly kills the
// leader, so that another replica takes over. At the end the test kills every replica at
// the same time, and the replicas restart. Then:
//
//   - the log contains the allocation and the release of each claim that was Ready
//   - the AllocationHistories contain the allocation and the release of each claim that
//     was Ready
//   - kubectl ipam who finds the owners in the log and in the AllocationHistories
//
// HISTORY_OPERATIONS and HISTORY_KILLS make the test longer.
func TestHistory_IsComplete(t *testing.T) {
	suite.SkipShort(t)
	operations, kills := number(t, "HISTORY_OPERATIONS", 600), number(t, "HISTORY_KILLS", 3)
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 3, ClusterAPI: true, Restart: true, ManagerArgs: []string{"--history-retention-days=30"}})
	all := lives{c: c, byUID: map[string]*life{}}
	namespaces := make([]string, len(suite.Kinds))
	var stays, leaves []client.Object // two claims of each kind that exist during the kills: stays until the end, leaves until the restart
	for n, kind := range suite.Kinds {
		namespaces[n] = suite.CreateNamespace(t, c)
		suite.Create(t, c, kind.Pool(namespaces[n], fmt.Sprintf("10.%d.0.0", 60+n), fmt.Sprintf("10.%d.1.199", 60+n)))
		stays, leaves = append(stays, all.create(t, kind, namespaces[n], "stays")), append(leaves, all.create(t, kind, namespaces[n], "leaves"))
	}
	path := filepath.Join(t.TempDir(), "manager.log")
	all.awaitLog(t, s, path) // the leader observes an allocation, and records its time, later than the test
	before := time.Now()

	began := time.Now()
	var done atomic.Int64
	var clients sync.WaitGroup
	for n, kind := range suite.Kinds {
		for of := range clientsPerKind {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n*clientsPerKind+of)))
				var stored []client.Object
				for i := of; i < operations/len(suite.Kinds); i += clientsPerKind {
					if len(stored) > 0 && random.IntN(2) == 0 {
						victim := random.IntN(len(stored))
						all.delete(t, stored[victim])
						stored[victim] = stored[len(stored)-1]
						stored = stored[:len(stored)-1]
					} else {
						stored = append(stored, all.create(t, kind, namespaces[n], fmt.Sprintf("claim-%d", i)))
					}
					done.Add(1)
				}
			})
		}
	}
	finished := make(chan struct{})
	go func() {
		clients.Wait()
		close(finished)
	}()
	ledAgain := 0
	for n := range kills { // the kills are spread evenly over the operations
		for want, isFinished := int64((n+1)*operations/(kills+1)), false; done.Load() < want && !isFinished; {
			select {
			case <-finished:
				isFinished = true
			case <-time.After(100 * time.Millisecond):
			}
		}
		if killLeader(t, s, c, n%2 == 1) {
			ledAgain++
		}
	}
	<-finished
	t.Logf("%d operations in %s; %d leaders were killed, of which %d led again at once", done.Load(), time.Since(began).Round(time.Second), kills, ledAgain)
	if t.Failed() || len(all.byUID) < operations/5 {
		t.Fatalf("only %d claims: the test shows nothing", len(all.byUID))
	}
	all.awaitHistory(t, s, path)
	for _, m := range s.Managers() { // no replica survives: the stored history continues after the restart
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for n, kind := range suite.Kinds {
		all.create(t, kind, namespaces[n], "restarted")
		all.delete(t, leaves[n])
	}
	logged, stored := all.awaitHistory(t, s, path)
	t.Logf("%d claims, %d records in the log, %d in the AllocationHistories", len(all.byUID), logged, stored)

	asked := 0
	for _, l := range all.byUID {
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

	// Each kind has a claim that still exists (stayed) and a claim that was deleted after
	// the kills (left). kubectl ipam who must return:
	//
	//   - from the whole log, and for the time before the kills: the claim
	//   - for now: stayed, and not left
	now := time.Now()
	for n := range suite.Kinds {
		stayed, left := all.byUID[string(stays[n].GetUID())], all.byUID[string(leaves[n].GetUID())]
		for _, l := range []*life{stayed, left} {
			requireOwner(t, l, s, "--log", path)
			for _, from := range [][]string{nil, {"--log", path}} {
				requireOwner(t, l, s, append([]string{"--at", before.UTC().Format(time.RFC3339Nano)}, from...)...)
				if at := append([]string{"--at", now.UTC().Format(time.RFC3339Nano)}, from...); names(t, l, s, at...) == l.released {
					t.Errorf("who %s %s: %s %s/%s is named: %t, released: %t", l.address, at, l.kind, l.namespace, l.name, !l.released, l.released)
				}
			}
			var present struct {
				Items []struct {
					Owner struct{ Kind, Namespace, Name string }
				}
			}
			if err := json.Unmarshal(who(t, s, l.address), &present); err != nil {
				t.Fatal(err)
			}
			owner := present.Items[0].Owner
			if isOwner := owner.Kind == l.kind && owner.Namespace == l.namespace && owner.Name == l.name; isOwner == l.released {
				t.Errorf("who %s names %+v; %s %s/%s is released: %t", l.address, owner, l.kind, l.namespace, l.name, l.released)
			}
		}
	}
}

// isComplete returns an error in these cases:
//
//   - the history lacks an allocation or a release
//   - the history contains the release of a stored claim
func isComplete(history historyrecord.History, lives map[string]*life) error {
	events := map[string]int{}
	for _, r := range history {
		events[r.Event+r.UID]++
	}
	for uid, l := range lives {
		if events[historyrecord.EventAllocated+uid] == 0 {
			return fmt.Errorf("%s %s/%s was allocated %s: the history lacks it", l.kind, l.namespace, l.name, l.address)
		}
		if l.released && events[historyrecord.EventReleased+uid] == 0 {
			return fmt.Errorf("%s %s/%s was released: the history lacks it", l.kind, l.namespace, l.name)
		}
		if !l.released && events[historyrecord.EventReleased+uid] > 0 {
			return fmt.Errorf("%s %s/%s is stored, and the history has its release", l.kind, l.namespace, l.name)
		}
	}
	return nil
}

// readObjects returns the history in the AllocationHistories.
func readObjects(ctx context.Context, c client.Client) (historyrecord.History, error) {
	var list butlerv1.AllocationHistoryList
	if err := c.List(ctx, &list, client.InNamespace(sandbox.ManagerNamespace)); err != nil {
		return nil, err
	}
	var all []historyrecord.Record
	for n := range list.Items {
		records, err := historyrecord.ReadObject(&list.Items[n])
		if err != nil {
			return nil, err
		}
		if int(list.Items[n].Spec.Count) != len(records) {
			return nil, fmt.Errorf("%s counts %d records, and has %d", list.Items[n].Name, list.Items[n].Spec.Count, len(records))
		}
		all = append(all, records...)
	}
	return historyrecord.NewHistory(all), nil
}

// who returns the output of kubectl ipam who for an address.
func who(t *testing.T, s *sandbox.Sandbox, address string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), "../../bin/kubectl-ipam", append([]string{"who", address, "-o", "json"}, args...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig())
	out, err := command.Output()
	if err != nil {
		t.Fatalf("who %s %s: %v", address, args, err)
	}
	return out
}

// names reports whether kubectl ipam who returns a claim as an owner of its address in
// the past, with the right times.
func names(t *testing.T, l *life, s *sandbox.Sandbox, args ...string) bool {
	t.Helper()
	var answer struct {
		Items []struct{ Kind, UID, From, Until string }
	}
	if err := json.Unmarshal(who(t, s, l.address, args...), &answer); err != nil {
		t.Fatal(err)
	}
	for _, tenure := range answer.Items {
		if tenure.UID == l.uid && tenure.Kind == l.kind && tenure.From != "" && (tenure.Until != "") == l.released {
			return true
		}
	}
	return false
}

// requireOwner requires that kubectl ipam who returns a claim as the owner of its
// address.
func requireOwner(t *testing.T, l *life, s *sandbox.Sandbox, args ...string) {
	t.Helper()
	if !names(t, l, s, args...) {
		t.Errorf("who %s %s does not name %s %s/%s: %s", l.address, args, l.kind, l.namespace, l.name, who(t, s, l.address, args...))
	}
}

// killLeader kills the leader and waits for the next leader. It reports whether the
// restarted replica leads again. With freeze, killLeader first stops the process of the
// leader, and kills the process after another replica leads.
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
