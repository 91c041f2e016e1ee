package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"butlerlabs.dev/ipam/allocator/journal"
)

const (
	// readyPoll is the interval of the readiness checks of the API server.
	readyPoll = 500 * time.Millisecond
	// readyLog is the interval at which a continuing wait is logged.
	readyLog = 30 * time.Second
)

// API lists the resources that the manager requires of an API group.
type API struct {
	Version   schema.GroupVersion
	Resources []string // plural resource and group: the names of the CRDs
}

// MissingCRDs returns the resources that an API server does not serve.
func (a API) MissingCRDs(server discovery.ServerResourcesInterface) ([]string, error) {
	served, err := server.ServerResourcesForGroupVersion(a.Version.String())
	if apierrors.IsNotFound(err) {
		served, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(a.Resources), func(resource string) bool {
		return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name+"."+a.Version.Group == resource })
	}), nil
}

// Await waits until an API server is ready and has the CRDs of the required APIs, and
// passes the reason for the wait to report; nil ends the wait. After a power cut the API
// server may start later than this process, and an installation may create CRDs last.
// Ending the process instead would make the kubelet restart the process at growing
// intervals of up to five minutes. If one API has its CRDs and another lacks some, the
// wait ends after limit: the complete API is served, and the incomplete API as soon as
// its CRDs exist.
func Await(ctx context.Context, server discovery.DiscoveryInterface, required []API, limit time.Duration, report func(error), log logr.Logger) error {
	began := time.Now()
	var logged time.Time
	for err := check(ctx, server, required); err != nil; err = check(ctx, server, required) {
		if lacks := (*missingError)(nil); errors.As(err, &lacks) && !lacks.all && time.Since(began) >= limit {
			log.Error(err, "Starting without the missing CRDs: their API is served when they exist")
			break
		}
		report(err)
		if time.Since(logged) > readyLog {
			log.Error(err, "Waiting for the API server", "since", began.Format(time.RFC3339), "checkedAgainAfter", readyPoll.String())
			logged = time.Now()
		}
		if err := journal.Pause(ctx, readyPoll); err != nil {
			return err
		}
	}
	report(nil)
	if !logged.IsZero() {
		log.Info("The API server is ready", "after", time.Since(began).String())
	}
	return nil
}

// check checks an API server once. An API server may forbid /readyz: then it counts as
// ready when it lists its APIs, since an API server authorizes no request earlier. CRDs
// are checked after readiness, because an API server that is not ready may not list all
// CRDs.
func check(ctx context.Context, server discovery.DiscoveryInterface, required []API) error {
	_, err := server.ServerGroups()
	if err == nil {
		err = server.RESTClient().Get().AbsPath("/readyz").Timeout(CallTimeout).MaxRetries(0).Do(ctx).Error()
	}
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	lacks := &missingError{all: true}
	for _, api := range required {
		missing, err := api.MissingCRDs(server)
		if err != nil {
			return fmt.Errorf("the API server does not list its resources: %w", err)
		}
		lacks.crds = append(lacks.crds, missing...)
		lacks.all = lacks.all && len(missing) > 0
	}
	if len(lacks.crds) > 0 {
		return lacks
	}
	return nil
}

// missingError lists CRDs that the API server lacks.
type missingError struct {
	crds []string
	all  bool // every required API lacks at least one CRD
}

func (e *missingError) Error() string {
	return fmt.Sprintf("the API server has no CRDs %s: install them (config/crd, or crds.install of the chart), or leave their API out of --apis", strings.Join(e.crds, ", "))
}
