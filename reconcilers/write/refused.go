package write

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsRefused reports whether the API server denied a write for a lasting reason. Foreign
// webhooks deny with every code, also with the codes for a changed or deleted object: see
// StaleChecker.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return 400 <= code && code < 500
	}
}
