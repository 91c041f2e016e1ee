package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// fieldManager is the name under which the API server records the fields that import
// writes.
const fieldManager = "kubectl-ipam"

// parallelCreates bounds the concurrent creates of import. The manager commits the grants
// of concurrent creates in one write.
const parallelCreates = 8

// apply writes a plan to the cluster: first the pool, then the claims. The order has two
// reasons:
//
//   - the update of the pool is one write: if a webhook denies a reservation, apply has
//     written nothing
//   - an IPPool keeps an address for a claim before apply creates the claim
func (a *app) apply(ctx context.Context, plan *importer.Plan) error {
	config, err := a.config()
	if err != nil {
		return err
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	pool := inventory.KindOf(plan.Pool.Key) + " " + inventory.NameOf(plan.Pool.Key)
	if plan.Updated != nil {
		if err := updatePool(ctx, client, plan); err != nil {
			return fmt.Errorf("%s was not updated, and no claim was created: %w", pool, err)
		}
	}
	created, err := a.createClaims(ctx, client, plan.Claims)
	if err == nil {
		return nil
	}
	done := "no claim was created"
	if created > 0 {
		done = fmt.Sprintf("%d of %s %s created", created, allocator.Counted(len(plan.Claims), "claim"), allocator.Agree(created, "was", "were"))
	}
	if plan.Updated != nil {
		done = pool + " was updated, and " + done
	}
	return fmt.Errorf("%s; the same command does the rest: %w", done, err)
}

// updatePool writes the reservations of a plan with a JSON patch, which replaces the list
// and fails if spec has changed since the plan was made. The alternatives are worse:
//
//   - server-side apply would make the plugin the field manager of the whole list,
//     although Git or a person may manage the list
//   - an update would fail after each update of the status
func updatePool(ctx context.Context, client *rest.RESTClient, plan *importer.Plan) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	field := plan.Pool.Kind.Reservations.Field
	list, _, err := unstructured.NestedFieldNoCopy(manifestOf(plan.Updated), "spec", field)
	if err != nil {
		return err
	}
	change := operation{Op: "add", Path: "/spec/" + field, Value: list}
	generation := plan.Pool.Object.GetGeneration()
	patch, err := json.Marshal([]operation{{"test", "/metadata/generation", generation}, change})
	if err != nil {
		return err
	}
	path := append(cluster.CollectionPath(plan.Pool.Key), plan.Pool.Key.Name)
	err = client.Patch(types.JSONPatchType).AbsPath(path...).Param("fieldManager", fieldManager).Body(patch).Do(ctx).Error()
	if err == nil {
		return nil
	}
	if raw, readErr := client.Get().AbsPath(path...).Do(ctx).Raw(); readErr == nil {
		var stored metav1.PartialObjectMetadata
		if json.Unmarshal(raw, &stored) == nil && stored.Generation != generation {
			return errors.New("the pool was changed meanwhile: run the command again")
		}
	}
	return err
}

// createClaims creates claims and returns the number of created claims. It does not use
// server-side apply: if an object with the name of a claim exists by now, the create
// fails and the object stays unchanged.
func (a *app) createClaims(ctx context.Context, client *rest.RESTClient, claims []importer.Claim) (created int, err error) {
	p := newProgress(a.raw.err, time.Now)
	text := func() string {
		return fmt.Sprintf("created %d of %s", created, allocator.Counted(len(claims), "claim"))
	}
	var mu sync.Mutex
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(parallelCreates)
	for _, c := range claims {
		if creating.Err() != nil {
			break
		}
		group.Go(func() error {
			body, err := json.Marshal(manifestOf(c.Object))
			if err != nil {
				return err
			}
			err = client.Post().AbsPath(cluster.CollectionPath(c.Key)...).Param("fieldManager", fieldManager).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error() // ctx lets creates in progress end, for an exact count
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				return fmt.Errorf("%s %s (%s): %w", c.Kind, inventory.NameOf(c.Key), rowsText(c.Rows), err)
			}
			created++
			p.step(created, len(claims), text())
			return nil
		})
	}
	if err = group.Wait(); err == nil && created < len(claims) {
		err = ctx.Err()
	}
	p.end(text())
	return created, err
}

// manifestOf returns an object without status and without the metadata that the API
// server and the manager set.
func manifestOf(o metav1.Object) map[string]any {
	text, err := json.Marshal(o)
	var manifest map[string]any
	if err != nil || json.Unmarshal(text, &manifest) != nil {
		return nil
	}
	delete(manifest, "status")
	if meta, ok := manifest["metadata"].(map[string]any); ok {
		for field := range meta {
			if !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, field) {
				delete(meta, field)
			}
		}
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
			delete(annotations, butlerv1.AnnotationCooldown)
			if len(annotations) == 0 {
				delete(meta, "annotations")
			}
		}
	}
	return manifest
}

// writeManifests writes the objects of a plan as files. kubectl applies the files of a
// directory in the order of their names, so the file of the pool is the first.
func writeManifests(directory string, plan *importer.Plan) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	if files, err := os.ReadDir(directory); err != nil || len(files) > 0 {
		return errors.Join(err, fmt.Errorf("--manifests=%s: the directory has files already: name an empty or new directory", directory))
	}
	var claims []map[string]any
	for _, c := range plan.Claims {
		claims = append(claims, manifestOf(c.Object))
	}
	var pools []map[string]any
	if plan.Updated != nil {
		pool := manifestOf(plan.Updated)
		pool["apiVersion"], pool["kind"] = plan.Pool.Kind.GroupVersionKind().GroupVersion().String(), plan.Pool.Kind.Name
		pools = append(pools, pool)
	}
	for name, manifests := range map[string][]map[string]any{"1-pool.yaml": pools, "2-claims.yaml": claims} {
		if len(manifests) == 0 {
			continue
		}
		var all strings.Builder
		for n, manifest := range manifests {
			text, err := yaml.Marshal(manifest)
			if err != nil {
				return err
			}
			if n > 0 {
				all.WriteString("---\n")
			}
			all.Write(text)
		}
		if err := os.WriteFile(filepath.Join(directory, name), []byte(all.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
