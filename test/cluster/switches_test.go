//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

const vip = `
apiVersion: novaedge.io/v1alpha1
kind: ProxyVIP
metadata:
  name: first
spec:
  address: 198.51.100.7
  mode: L2ARP
  ports: [443]
`

// switches turns an API group on under a running manager, and off again, which is refused as long as objects of it are stored.
func switches(t *testing.T) {
	parts := func() string {
		return kubectl(t, "get", "clusterroles,mutatingwebhookconfigurations,validatingwebhookconfigurations", "--selector=app.kubernetes.io/instance="+release, "--output=yaml")
	}
	if strings.Contains(parts(), "novaedge.io") {
		t.Error("a group that was never on has roles or webhooks")
	}
	helm(t, "upgrade", withValues("apis.novaedge=true")...)
	until(t, "the webhooks of the group", func() error {
		_, err := create(t, vip)
		return err
	})
	if grant := kubectl(t, "get", "proxyvip/first", "--output=jsonpath={.metadata.annotations}"); !strings.Contains(grant, "grant") {
		t.Errorf("the VIP is stored with annotations %s", grant)
	}

	off := append([]string{"upgrade", release, "--namespace=" + namespace, "--wait", "--timeout=2m"}, withValues()...)
	_, err := try(t, "", "helm", off...)
	if err == nil || !strings.Contains(err.Error(), "apis.novaedge cannot be switched off while objects of novaedge.io exist: 1 of kind ProxyVIP") {
		t.Errorf("switched off while an object is stored: %v", err)
	}
	kubectl(t, "delete", "proxyvip/first", "--timeout=30s")
	must(t, "", "helm", off...)
	if strings.Contains(parts(), "novaedge.io") {
		t.Error("what is switched off has left roles or webhooks behind")
	}
	if _, err := create(t, vip); err != nil { // which is of nobody's now, and so stored as it is
		t.Error(err)
	}
	if stored := kubectl(t, "get", "proxyvip/first", "--output=jsonpath={.metadata.annotations}"); stored != "" {
		t.Errorf("with the group off a VIP was answered: %s", stored)
	}
	must(t, "", "helm", off...) // what others store under a group that is off is theirs
	kubectl(t, "delete", "proxyvip/first", "--timeout=30s")
}
