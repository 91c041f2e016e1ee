package services

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func TestIsOwnedBy(t *testing.T) {
	vip := newVIP("svc-team.web")
	denied := func(causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	field := metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: "spec.address", Message: "10.0.0.5 is owned by proxyvips/svc-team.web: ask for another range"}
	owner := func(name string) metav1.StatusCause {
		return metav1.StatusCause{Type: butlerv1.CauseOwner, Message: name}
	}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"its own address":             {denied(field, owner("proxyvips.novaedge.io/svc-team.web")), true},
		"wrapped":                     {fmt.Errorf("dry run: %w", denied(field, owner("proxyvips.novaedge.io/svc-team.web"))), true},
		"another ProxyVIP's":          {denied(field, owner("proxyvips.novaedge.io/svc-team.web2")), false},
		"another kind's":              {denied(field, owner("ipallocations.butler.butlerlabs.dev/svc-team.web")), false},
		"a message without the cause": {denied(field), false},
		"no answer":                   {errors.New("is owned by proxyvips/svc-team.web: no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOwnedBy(tc.err, vip); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
