package write

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsTooLarge reports whether a write failed because the object is too large for the API
// server or etcd. The API server has no reason of its own for an error of etcd: only the
// text of the response tells it (etcd's limit, and the limit of the API server's client
// of etcd).
func IsTooLarge(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(text, "etcdserver: request is too large") || strings.Contains(text, "trying to send message larger than max")
}
