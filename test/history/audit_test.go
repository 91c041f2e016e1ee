package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// auditEvent contains the fields of an event in the API server's audit log that the test
// reads.
type auditEvent struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ Resource, APIGroup, Subresource string }
	// ResponseObject is the stored object.
	ResponseObject json.RawMessage
}

// With the sample policy, the audit log of the API server contains only the creates, with
// the addresses, and the deletes of claims and address objects of each kind.
func TestAuditPolicy_LogsCreatesAndDeletes(t *testing.T) {
	policy, err := filepath.Abs("../../config/samples/audit-policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	_, c := suite.StartSandbox(t, sandbox.Options{
		Replicas: 1, ClusterAPI: true, APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + path, "--audit-log-mode=blocking"},
	})
	want := map[string]string{ // resource.group and verb -> part of the stored object
		"ipaddresses.ipam.metal3.io create": "", "ipaddresses.ipam.metal3.io delete": "", "ipaddresses.ipam.cluster.x-k8s.io create": "", "ipaddresses.ipam.cluster.x-k8s.io delete": "",
	}
	groups := map[string]string{"ipallocations": "butler.butlerlabs.dev", "ipclaims": "ipam.metal3.io", "ipaddressclaims": "ipam.cluster.x-k8s.io", "proxyvips": "novaedge.io"}
	for n, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, c)
		suite.Create(t, c, kind.Pool(ns, fmt.Sprintf("10.%d.0.0", 60+n), fmt.Sprintf("10.%d.0.99", 60+n)))
		claim := kind.Claim(ns, "claim", "")
		suite.Create(t, c, claim)
		suite.AwaitObject(t, c, claim, func(o client.Object) string {
			if !kind.Bound(o) {
				return "not bound"
			}
			return ""
		})
		want[kind.Resource+"."+groups[kind.Resource]+" create"] = fmt.Sprintf("10.%d.0.", 60+n)
		want[kind.Resource+"."+groups[kind.Resource]+" delete"] = ""
		suite.Delete(t, c, claim)
		suite.AwaitGone(t, c, claim)
	}
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		log, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen := map[string][]byte{}
		for lines := bufio.NewReader(bytes.NewReader(log)); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var e auditEvent
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			event := e.ObjectRef.Resource + "." + e.ObjectRef.APIGroup + " " + e.Verb
			if _, wanted := want[event]; !wanted || e.ObjectRef.Subresource != "" || e.User.Username == "" {
				t.Fatalf("the log has an event that the policy leaves out, or without a user: %s", line)
			}
			seen[event] = append(seen[event], e.ResponseObject...)
		}
		for event, part := range want {
			if _, found := seen[event]; !found || !bytes.Contains(seen[event], []byte(part)) {
				return fmt.Errorf("the log lacks %s with %q: %s", event, part, seen[event])
			}
		}
		return nil
	})
}
