package gitops

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// flux is a Kustomization of Flux' kustomize-controller, in intervals of the test's
// choice.
type flux struct {
	manager   *ssa.ResourceManager
	options   ssa.ApplyOptions
	name      string
	inventory object.ObjMetadataSet
	changes   *ssa.ChangeSet // of the last sync
}

const fluxManager = "kustomize-controller"

func newFlux(t *testing.T, namespace string) *flux {
	t.Helper()
	manager := ssa.NewResourceManager(stored, polling.NewStatusPoller(stored, stored.RESTMapper(), polling.Options{}),
		ssa.Owner{Field: fluxManager, Group: "kustomize.toolkit.fluxcd.io"})
	manager.SetConcurrency(4)
	options := ssa.DefaultApplyOptions()
	options.WaitInterval = 50 * time.Millisecond
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{"kubectl.kubernetes.io/last-applied-configuration"},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: fluxManager, OperationType: metav1.ManagedFieldsOperationUpdate},
		},
	}
	return &flux{manager: manager, options: options, name: namespace}
}

func (f *flux) sync(ctx context.Context, objects []*unstructured.Unstructured) (err error) {
	f.manager.SetOwnerLabels(objects, f.name, f.name)
	if f.changes, err = f.manager.ApplyAllStaged(ctx, objects, f.options); err != nil {
		return err
	}
	applied := f.changes.ToObjMetadataSet()
	var stale []*unstructured.Unstructured
	for _, id := range f.inventory.Diff(applied) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(id.GroupKind.WithVersion(v1alpha1.GroupVersion.Version))
		o.SetNamespace(id.Namespace)
		o.SetName(id.Name)
		stale = append(stale, o)
	}
	prune := ssa.DefaultDeleteOptions()
	prune.Inclusions = f.manager.GetOwnerLabels(f.name, f.name)
	if _, err := f.manager.DeleteAll(ctx, stale, prune); err != nil {
		f.inventory = f.inventory.Union(applied) // what could not be deleted is tried again
		return err
	}
	f.inventory = applied
	return f.manager.WaitForTermination(stale, ssa.WaitOptions{Interval: 20 * time.Millisecond, Timeout: soon})
}

// healthy waits as a Kustomization with wait: true does.
func (f *flux) healthy(ctx context.Context, timeout time.Duration) error {
	return f.manager.WaitForSetWithContext(ctx, f.changes.ToObjMetadataSet(), ssa.WaitOptions{Interval: 50 * time.Millisecond, Timeout: timeout, FailFast: true})
}

func (f *flux) drifted(ctx context.Context, objects []*unstructured.Unstructured) (names []string, err error) {
	f.manager.SetOwnerLabels(objects, f.name, f.name)
	for _, o := range objects {
		change, _, _, err := f.manager.Diff(ctx, o, ssa.DefaultDiffOptions())
		if err != nil {
			return nil, err
		}
		if change.Action != ssa.UnchangedAction {
			names = append(names, o.GetName())
		}
	}
	slices.Sort(names)
	return names, nil
}

// poolsFirst has pools applied in a stage before everything else.
func (f *flux) poolsFirst(t *testing.T) {
	t.Helper()
	kinds, err := utils.ParseGroupKindSet("butler.butlerlabs.dev/NetworkPool") // as --custom-apply-stage-kinds takes it
	if err != nil {
		t.Fatal(err)
	}
	f.options.CustomStageKinds = kinds
}
