package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// listClusters lists the Clusters of Cluster API; none if Cluster API is not installed.
func listClusters(ctx context.Context, client *rest.RESTClient) (inventory.Clusters, error) {
	type cluster struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Paused bool `json:"paused"`
		} `json:"spec"`
	}
	stored := inventory.Clusters{}
	err := listPages(ctx, client, "", func(c cluster) {
		stored[c.Namespace+"/"+c.Name] = clusterpause.Cluster{UID: c.UID, Paused: c.Spec.Paused, HasPausedAnnotation: clusterpause.IsPaused(&c.ObjectMeta)}
	}, "apis", clusterv1.GroupVersion.Group, clusterv1.GroupVersion.Version, "clusters")
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// addClusters adds the Clusters to an inventory with claims whose reason depends on
// Clusters. Clusters that the user may not list stay unknown.
func addClusters(ctx context.Context, client *rest.RESTClient, i *inventory.Inventory) error {
	if !i.NamesCluster() {
		return nil
	}
	stored, err := listClusters(ctx, client)
	if apierrors.IsForbidden(err) {
		return nil
	}
	i.SetClusters(stored)
	return err
}
