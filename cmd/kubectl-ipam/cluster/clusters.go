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

// resourceCluster is the resource of the Clusters of Cluster API.
var resourceCluster = resource{name: "clusters.cluster.x-k8s.io", GroupVersionResource: clusterv1.GroupVersion.WithResource("clusters")}

// listClusters lists the Clusters of Cluster API in a namespace, or in all namespaces
// (""); none if Cluster API is not installed.
func listClusters(ctx context.Context, client *rest.RESTClient, namespace string) (inventory.Clusters, error) {
	type cluster struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Paused bool `json:"paused"`
		} `json:"spec"`
	}
	stored := inventory.Clusters{}
	err := listPages(ctx, client, "", func(c cluster) {
		stored[c.Namespace+"/"+c.Name] = clusterpause.Cluster{UID: c.UID, Paused: c.Spec.Paused, HasPausedAnnotation: clusterpause.IsPaused(&c.ObjectMeta)}
	}, path(resourceCluster.GroupVersionResource, namespace)...)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// readableClusters lists the Clusters in all namespaces; if the user lacks the right, in
// the given namespace. in is the namespace of the list. Clusters that the user may not
// list stay unknown: nil.
func readableClusters(ctx context.Context, client *rest.RESTClient, namespace string) (stored inventory.Clusters, in string, err error) {
	if stored, err = listClusters(ctx, client, ""); apierrors.IsForbidden(err) && namespace != "" {
		in = namespace
		stored, err = listClusters(ctx, client, namespace)
	}
	if apierrors.IsForbidden(err) {
		return nil, "", nil
	}
	return stored, in, err
}

// addClusters adds the Clusters to an inventory with claims whose reason depends on
// Clusters.
func addClusters(ctx context.Context, client *rest.RESTClient, namespace string, i *inventory.Inventory) error {
	if !i.NamesCluster() {
		return nil
	}
	stored, in, err := readableClusters(ctx, client, namespace)
	i.SetClusters(stored, in)
	return err
}
