package tenancy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// platformIngress is the Service of the ingress controller that the platform installs in a tenant.
var platformIngress = types.NamespacedName{Namespace: "traefik", Name: "traefik"}

// mark labels that Service as the platform's where it has no such label, so that it is not counted as the tenant's. Nothing depends on it.
func (s *session) mark(ctx context.Context, c *connection) error {
	o, found, err := c.services.GetByKey(platformIngress.String())
	service, ok := o.(*corev1.Service)
	if err != nil || !found || !ok || service.Labels[v1alpha1.LabelPlatformLB] != "" {
		return err
	}
	patch := fmt.Sprintf(`{"metadata": {"uid": %q, "labels": {%q: "true"}}}`, service.UID, v1alpha1.LabelPlatformLB)
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	_, err = c.core.Services(service.Namespace).Patch(ctx, service.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: ownerMetalLB})
	if apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
		return nil // its next change brings it here again
	}
	return client.IgnoreNotFound(err)
}
