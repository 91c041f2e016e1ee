package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	once "sync"
	"testing"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// argo is an Application of Argo CD's application controller, which syncs and compares
// when the test says so.
type argo struct {
	cache     cache.ClusterCache
	kubectl   kube.Kubectl
	namespace string
	syncing   []sync.SyncOpt
	diff      []diff.Option
}

const (
	argoManager = "argocd-controller"
	argoTracks  = "argocd.argoproj.io/tracking-id"
)

// An Application can have its objects applied by the client or by the server, and
// compared by the client, by the server's rules for who owns a field, or by a dry run.
type argoOptions struct{ serverSideApply, serverSideDiff bool }

// argoCache is what the controller knows of the cluster, for all Applications.
var argoCache = once.OnceValues(func() (cache.ClusterCache, error) {
	live := cache.NewClusterCache(cluster.Config(), cache.SetLogr(logr.Discard()), cache.SetSettings(cache.Settings{ResourcesFilter: oursOnly{}}),
		cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (info any, cacheManifest bool) {
			id := o.GetAnnotations()[argoTracks]
			return id, id != ""
		}))
	return live, live.EnsureSynced()
})

// oursOnly is the setting by which Argo CD does not look at what no Application has.
type oursOnly struct{}

func (oursOnly) IsExcludedResource(group, _, _ string) bool {
	return group != v1alpha1.GroupVersion.Group
}

func newArgo(options argoOptions) func(t *testing.T, namespace string) gitops {
	return func(t *testing.T, namespace string) gitops {
		t.Helper()
		live, err := argoCache()
		must(t, err)
		// Foreground, the default, waits for the garbage collector, which is no part of
		// this control plane.
		background := metav1.DeletePropagationBackground
		a := &argo{
			cache: live, kubectl: &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}, namespace: namespace,
			syncing: []sync.SyncOpt{
				sync.WithPrune(true), sync.WithPrunePropagationPolicy(&background), sync.WithManifestValidation(true), sync.WithLogr(logr.Discard()),
				sync.WithServerSideApply(options.serverSideApply), sync.WithServerSideApplyManager(argoManager),
			},
			diff: []diff.Option{
				diff.WithLogr(logr.Discard()), diff.WithManager(argoManager), diff.WithGVKParser(live.GetGVKParser()),
				diff.WithStructuredMergeDiff(options.serverSideApply),
			},
		}
		if options.serverSideDiff {
			runner, stop, err := a.kubectl.ManageServerSideDiffDryRuns(cluster.Config())
			must(t, err)
			t.Cleanup(stop)
			// Not to leave out what webhooks change in a dry run is the stricter
			// comparison.
			a.diff = append(a.diff, diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(runner)), diff.WithIgnoreMutationWebhook(false))
		}
		return a
	}
}

func (a *argo) tracks(r *cache.Resource) bool { return r.Info == a.id(r.ResourceKey()) }

func (a *argo) id(k kube.ResourceKey) string {
	return fmt.Sprintf("%s:%s/%s:%s/%s", a.namespace, k.Group, k.Kind, k.Namespace, k.Name)
}

func (a *argo) mark(objects []*unstructured.Unstructured) {
	for _, o := range objects {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[argoTracks] = a.id(kube.GetResourceKey(o))
		o.SetAnnotations(annotations)
	}
}

// sync takes an operation from wave to wave, each with what is stored then.
func (a *argo) sync(ctx context.Context, objects []*unstructured.Unstructured) error {
	a.mark(objects)
	var (
		phase   = common.OperationRunning
		began   = metav1.Now()
		message string
		results []common.ResourceSyncResult
	)
	for !phase.Completed() {
		both, err := a.reconcile(ctx, objects)
		if err != nil {
			return err
		}
		operation, cleanup, err := sync.NewSyncContext("revision", both, cluster.Config(), cluster.Config(), a.kubectl, a.namespace,
			append(slices.Clone(a.syncing), sync.WithInitialState(phase, message, results, began))...)
		if err != nil {
			return err
		}
		operation.Sync()
		phase, message, results = operation.GetState()
		cleanup()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if phase == common.OperationSucceeded {
		return nil
	}
	err := errors.New(message)
	for _, r := range results {
		if r.Status == common.ResultCodeSyncFailed {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.ResourceKey.Name, r.Message))
		}
	}
	return err
}

func (a *argo) drifted(ctx context.Context, objects []*unstructured.Unstructured) (names []string, err error) {
	a.mark(objects)
	both, err := a.reconcile(ctx, objects)
	if err != nil {
		return nil, err
	}
	compared, err := diff.DiffArray(both.Target, both.Live, a.diff...)
	if err != nil {
		return nil, err
	}
	for i, result := range compared.Diffs {
		if o := both.Target[i]; o == nil {
			names = append(names, both.Live[i].GetName())
		} else if result.Modified || both.Live[i] == nil {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names)
	return names, nil
}

// reconcile sets the objects beside what is stored.
func (a *argo) reconcile(ctx context.Context, objects []*unstructured.Unstructured) (sync.ReconciliationResult, error) {
	if err := a.catchUp(ctx); err != nil {
		return sync.ReconciliationResult{}, err
	}
	var targets []*unstructured.Unstructured
	for _, o := range objects {
		targets = append(targets, o.DeepCopy())
	}
	live, err := a.cache.GetManagedLiveObjs(targets, a.tracks)
	if err != nil {
		return sync.ReconciliationResult{}, err
	}
	return sync.Reconcile(targets, live, a.namespace, a.cache), nil
}

// catchUp waits until the engine has seen what is stored.
func (a *argo) catchUp(ctx context.Context) error {
	return eventually(ctx, func() error {
		want, err := versions(ctx, a.namespace)
		if err != nil {
			return err
		}
		got := map[string]string{}
		for k, r := range a.cache.FindResources(a.namespace) {
			got[k.Kind+"/"+k.Name] = r.ResourceVersion
		}
		return different(want, got)
	})
}
