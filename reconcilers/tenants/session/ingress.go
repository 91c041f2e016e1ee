package session

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/remote"
)

// platformIngress is the Service of the ingress controller that the platform installs in
// a tenant.
var platformIngress = types.NamespacedName{Namespace: "traefik", Name: "traefik"}

// labelIngress adds the label of the platform's Services to platformIngress, so that
// metrics do not count the Service as the tenant's. No decision depends on the label: a
// denied or conflicting write is ignored until the Service changes.
func (s *session) labelIngress(ctx context.Context, c *remote.Connection) error {
	service, err := c.FindService(platformIngress)
	if err != nil || service == nil || service.Labels[v1alpha1.LabelPlatformLB] != "" {
		return err
	}
	err = c.LabelPlatformService(ctx, service)
	if apierrors.IsForbidden(err) || apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
