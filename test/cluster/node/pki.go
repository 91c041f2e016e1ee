//go:build linux

package main

import (
	"os"

	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/test/pki"
)

// writePKI writes the keys, certificates and kubeconfigs by which the components know one
// another.
func (n node) writePKI() error {
	ca, err := pki.New("cluster")
	if err != nil {
		return err
	}
	frontProxy, err := pki.New("front-proxy")
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": ca.PEM, "front-proxy-ca.crt": frontProxy.PEM}
	for name, issue := range map[string]func() (certificate, key []byte, err error){
		"apiserver": func() ([]byte, []byte, error) {
			return ca.Server("kubernetes", "kubernetes.default", "kubernetes.default.svc", nodeIP, apiIP)
		},
		"kubelet":                  func() ([]byte, []byte, error) { return ca.Server(nodeName, nodeIP) },
		"service-account":          func() ([]byte, []byte, error) { return ca.Server() },
		"apiserver-kubelet-client": func() ([]byte, []byte, error) { return ca.Client("kube-apiserver", "system:masters") },
		"front-proxy-client":       func() ([]byte, []byte, error) { return frontProxy.Client("front-proxy-client") },
	} {
		if files[name+".crt"], files[name+".key"], err = issue(); err != nil {
			return err
		}
	}
	for name, identity := range map[string][]string{
		"admin":                   {"admin", "system:masters"},
		"kube-controller-manager": {"system:kube-controller-manager"},
		"kube-scheduler":          {"system:kube-scheduler"},
		"kube-proxy":              {"system:kube-proxy"},
		"kubelet":                 {"system:node:" + nodeName, "system:nodes"},
	} {
		config := &rest.Config{Host: "https://" + nodeIP + ":6443", TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM}}
		if config.CertData, config.KeyData, err = ca.Client(identity[0], identity[1:]...); err != nil {
			return err
		}
		if files[name+".kubeconfig"], err = pki.Kubeconfig("cluster", config, ""); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(n.pki(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
