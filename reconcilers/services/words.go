package services

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// writtenIn is where a Service says what a field of its ProxyVIP says: field of spec -> field or annotation of the Service.
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

// fieldOf is where a Service says what a field of its ProxyVIP says. Fields that a Service has too, such as spec.ports, have their own name.
func fieldOf(s *corev1.Service, path string) string {
	name := strings.TrimPrefix(path, "spec.")
	if end := strings.IndexAny(name, ".["); end >= 0 {
		name = name[:end]
	}
	at, known := writtenIn[name]
	switch {
	case !known:
		return path
	case at == "spec.loadBalancerIP" && len(recorded(s, nil)) > 0:
		return "annotation " + v1alpha1.AnnotationVIPAddresses
	}
	return at
}

// wordsFor is the API server's refusal of the ProxyVIP of a Service, in the words of the Service: each cause names the field or annotation in which the author
// of the Service wrote the value.
func wordsFor(s *corev1.Service, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var texts []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Type == butlerv1.CauseOwner {
			continue // the message of another cause names the owner too
		}
		text := strings.ReplaceAll(cause.Message, "addressFamily", writtenIn["addressFamily"])
		if cause.Field != "" {
			text = fieldOf(s, cause.Field) + ": " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}
