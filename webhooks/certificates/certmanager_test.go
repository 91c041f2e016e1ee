package certificates

import (
	"strings"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTroubleWithACertificate(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: begin.Add(d)} }
	certificate := func(ready cmmeta.ConditionStatus, renewal, end *metav1.Time) *cmv1.Certificate {
		return &cmv1.Certificate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ipam", Name: "webhook"},
			Status: cmv1.CertificateStatus{RenewalTime: renewal, NotAfter: end, Conditions: []cmv1.CertificateCondition{
				{Type: cmv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue},
				{Type: cmv1.CertificateConditionReady, Status: ready, Reason: "Expired", Message: "it has ended"},
			}},
		}
	}
	month := 30 * 24 * time.Hour
	for name, tc := range map[string]struct {
		certificate *cmv1.Certificate
		want        []string // nothing for no trouble
	}{
		"ready":                         {certificate(cmmeta.ConditionTrue, at(time.Hour), at(month)), nil},
		"ready for ever":                {certificate(cmmeta.ConditionTrue, nil, nil), nil},
		"being renewed":                 {certificate(cmmeta.ConditionTrue, at(-time.Minute), at(month)), nil},
		"overdue":                       {certificate(cmmeta.ConditionTrue, at(-2*time.Hour), at(month)), []string{"should have been renewed at 2025-12-31T22:00:00Z", "ends at 2026-01-31T00:00:00Z"}},
		"overdue, as short as it lives": {certificate(cmmeta.ConditionTrue, at(-2*time.Minute), at(10*time.Minute)), []string{"should have been renewed"}},
		"not ready":                     {certificate(cmmeta.ConditionFalse, nil, at(month)), []string{"ipam/webhook is not Ready (Expired: it has ended)", "ends at"}},
		"new":                           {&cmv1.Certificate{}, []string{"cert-manager has not looked at it yet"}},
	} {
		got := troubleOf(tc.certificate, begin)
		if len(tc.want) == 0 && got != "" {
			t.Errorf("%s: %q", name, got)
		}
		for _, want := range tc.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q does not say %q", name, got, want)
			}
		}
	}
}
