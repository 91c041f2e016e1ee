package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// May reports whether the user of a client has the right to a verb on an object; for a
// key without a name, on the objects of the namespace. After an error, May returns false.
func May(ctx context.Context, client *rest.RESTClient, verb string, of inventory.Key) bool {
	gvr := ResourceOf(of.Resource)
	body, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: gvr.Group, Resource: gvr.Resource, Namespace: of.Namespace, Name: of.Name,
		}},
	})
	if err != nil {
		return false
	}
	var review authorizationv1.SelfSubjectAccessReview
	raw, err := client.Post().AbsPath("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	return err == nil && json.Unmarshal(raw, &review) == nil && review.Status.Allowed
}

// isServed reports whether the API server serves a resource. isServed reads the discovery
// document, which every user may read: for a resource that is not installed, the response
// to a list depends on the rights of the user.
func (o Options) isServed(ctx context.Context, of resource) (bool, error) {
	client, err := rest.UnversionedRESTClientFor(o.Config)
	if err != nil {
		return false, err
	}
	raw, err := client.Get().AbsPath("apis", of.Group, of.Version).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) { // a cluster without the roles of discovery
		return true, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return false, fmt.Errorf("resources of %s/%s: %w", of.Group, of.Version, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == of.Resource }), nil
}
