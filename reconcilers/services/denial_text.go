package services

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// writtenIn maps a field of a ProxyVIP's spec to the field or annotation of the Service
// with its value.
var writtenIn = map[string]string{
	"address":       "spec.loadBalancerIP",
	"ipv6Address":   "spec.loadBalancerIP",
	"poolRef":       "annotation " + v1alpha1.AnnotationAddressPool,
	"addressFamily": "annotation " + v1alpha1.AnnotationAddressFamily,
	"mode":          "annotation " + v1alpha1.AnnotationVIPMode,
	"bgpConfig":     "annotation " + v1alpha1.AnnotationBGPConfig,
	"ospfConfig":    "annotation " + v1alpha1.AnnotationOSPFConfig,
	"nodeSelector":  "annotation " + v1alpha1.AnnotationNodeSelector,
	"bfd":           "annotation " + v1alpha1.AnnotationBFDEnabled,
}

// fieldOf returns the field or annotation of the Service with the value of a ProxyVIP's
// field. A field that a Service has too, such as spec.ports, keeps the name.
func fieldOf(s *corev1.Service, path string) string {
	name := strings.TrimPrefix(path, "spec.")
	if end := strings.IndexAny(name, ".["); end >= 0 {
		name = name[:end]
	}
	at, known := writtenIn[name]
	switch {
	case !known:
		return path
	case at == "spec.loadBalancerIP" && len(recordedAddresses(s, nil)) > 0:
		return "annotation " + v1alpha1.AnnotationVIPAddresses
	}
	return at
}

// describeFor words the API server's denial of a ProxyVIP for the author of the Service:
// each cause names the field or annotation of the Service.
func describeFor(s *corev1.Service, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var texts []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == butlerv1.CauseOwner || cause.Type == butlerv1.CauseTransient {
			continue // the message of another cause says it too
		}
		text := strings.ReplaceAll(cause.Message, "addressFamily", writtenIn["addressFamily"])
		if cause.Field != "" {
			text = fieldOf(s, cause.Field) + ": " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
