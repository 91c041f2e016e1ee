package butler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// kill ends a process without a warning.
func kill(t *testing.T, p *sandbox.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err == nil {
		t.Fatalf("%s ended without an error", p.Name())
	}
}

func begin(t *testing.T, p *sandbox.Process) {
	t.Helper()
	if err := errors.Join(p.Start(), p.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// again kills a process and starts it again.
func again(t *testing.T, p *sandbox.Process) {
	t.Helper()
	kill(t, p)
	begin(t, p)
}

// versions is what is stored of the allocations of a namespace: name -> resourceVersion
// and range.
func versions(t *testing.T, c client.Reader, namespace string) map[string]string {
	t.Helper()
	var list v1alpha1.IPAllocationList
	if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for i := range list.Items {
		a := &list.Items[i]
		all[a.Name] = a.ResourceVersion + " " + addressesOf(a)
	}
	return all
}

// A restart with 5,000 allocations changes none of them.
func TestRestart_ChangesNothing(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	const total = 5000
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--shutdown-delay=0s"}})
	ns, manager := suite.CreateNamespace(t, c), s.Managers()[0]
	p := domainPool(ns, "10.60.0.0/17")
	suite.Create(t, c, p)
	creates, ctx := errgroup.WithContext(t.Context())
	creates.SetLimit(32)
	for i := range total {
		creates.Go(func() error { return c.Create(ctx, claim(ns, fmt.Sprintf("a-%04d", i), 5)) })
	}
	if err := creates.Wait(); err != nil {
		t.Fatal(err)
	}
	counts(t, c, ns, total, isReady)
	suite.AwaitObject(t, c, p, func(p *v1alpha1.NetworkPool) string {
		if p.Status.AllocatedIPs != 5*total {
			return numbers(p)
		}
		return ""
	})
	before := versions(t, c, ns)
	owned := map[string]bool{}
	for _, text := range before {
		_, addresses, _ := strings.Cut(text, " ")
		owned[addresses] = true
	}

	const busy = 3 // times slower may a machine be that runs other tests meanwhile
	for _, tc := range []struct {
		name   string
		end    func(t *testing.T)
		within time.Duration
	}{
		{"after_SIGTERM", func(t *testing.T) {
			if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
				t.Fatal(err)
			}
		}, 3 * time.Second},
		{"after_SIGKILL", func(t *testing.T) { kill(t, manager.Process) }, 8 * time.Second},
		{"of_everything", func(t *testing.T) {
			for _, p := range []*sandbox.Process{manager.Process, s.APIServer(), s.Etcd()} {
				kill(t, p)
			}
			begin(t, s.Etcd())
			begin(t, s.APIServer())
		}, 8 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.end(t)
			started := time.Now()
			begin(t, manager.Process)
			took := time.Since(started)
			t.Logf("serving after %s", took)
			if took >= busy*tc.within {
				t.Errorf("serving after %s, want %s", took, tc.within)
			}
			a := claim(ns, fmt.Sprintf("after-%d", started.UnixNano()), 5)
			suite.Create(t, c, a)
			if owned[addressesOf(a)] {
				t.Errorf("%s is allocated twice", addressesOf(a))
			}
			readyWith(t, c, a, "")
			suite.Delete(t, c, a)
			if diff := cmp.Diff(before, versions(t, c, ns)); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// What was stored since a backup of etcd has never been, and what was deleted since is
// there. The managers run all the time, and nothing notifies them: a watch is silent
// until the resourceVersion has passed the one that they know.
func TestRestore_EtcdFromABackup(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 2, Restart: true, ManagerArgs: []string{"--shutdown-delay=0s"}})
	ns := suite.CreateNamespace(t, c)
	whileDown := func(do func(data string) error) {
		t.Helper()
		kill(t, s.APIServer())
		kill(t, s.Etcd())
		if err := do(filepath.Join(s.Dir(), "etcd")); err != nil {
			t.Fatal(err)
		}
		begin(t, s.Etcd())
		begin(t, s.APIServer())
	}
	create := func(name string) *v1alpha1.IPAllocation {
		t.Helper()
		a := claim(ns, name, 1)
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return c.Create(ctx, a) })
		return a
	}
	suite.Create(t, c, domainPool(ns, "10.61.0.0/28"))
	kept, freed := create("kept"), create("freed")
	readyWith(t, c, freed, "")
	backup := t.TempDir()
	whileDown(func(data string) error { return os.CopyFS(backup, os.DirFS(data)) })

	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, freed.DeepCopy())) })
	suite.AwaitGone(t, c, freed.DeepCopy())
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: ns}}
	suite.Create(t, c, other)
	for i := range 300 { // so that the restored etcd is behind for a while
		other.Data = map[string]string{"i": fmt.Sprint(i)}
		if err := c.Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	whileDown(func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(backup))
	})

	fresh := create("fresh")
	if slices.Contains([]string{addressesOf(kept), addressesOf(freed)}, addressesOf(fresh)) {
		t.Errorf("%s is allocated twice", addressesOf(fresh))
	}
	readyWith(t, c, fresh, "")
	if !isReady(suite.Read(t, c, freed)) {
		t.Errorf("the restored allocation is %+v", freed.Status)
	}
	for _, m := range s.Managers() { // each ends and reads everything anew
		suite.AwaitText(t, logOf(m), "restored from a backup")
		suite.Eventually(t, suite.Soon, m.Probe)
	}
}

func logOf(m *sandbox.Manager) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(m.LogPath())
		return string(text), err
	}
}
