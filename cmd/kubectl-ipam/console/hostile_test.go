package console

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

// No format of a page contains a character that a terminal or a browser obeys; JSON has
// the text of the author, and no cell of CSV is a formula.
func TestPages_HostileTexts(t *testing.T) {
	const evil = "=x\x1b]0;owned\x07\r\u202e\u009b2J<b>"
	pool := networkPool("vlan40", "10.40.0.0/26", "", "10.40.0.0/29")
	pool.Spec.Reserved[0].Description = evil
	pool.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Paused", Message: evil}}
	waiting := allocation("vlan40", "waits", "hungry", "", "", butlerv1.TypeNodes)
	waiting.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: evil}}
	release := butlerv1.Release{Name: evil, Tenant: butlerv1.RecordedReference{Namespace: evil, Name: evil}, StartAddress: "10.40.0.20", EndAddress: "10.40.0.23", ReleasedAt: metav1.NewTime(now)}
	pool.Status.Releases = []butlerv1.Release{release}
	h := handlerOf(newInventory(t, []metav1.Object{pool, waiting, allocation("vlan40", "web", "=web", "10.40.0.9", "10.40.0.9", butlerv1.TypeNodes)}))
	for _, body := range crawl(t, h, 200) {
		if body != safetext.Text(body) {
			t.Errorf("a terminal obeys %q", body)
		}
	}
	found := map[string]bool{}
	for _, target := range []string{"/pools", "/pool?" + vlan40, "/claims", "/address?address=10.40.0.1", "/pool.json?" + vlan40, "/claims.json", "/address.json?address=10.40.0.1", "/pool.csv?" + vlan40} {
		w := get(t, h, target)
		body := w.Body.String()
		if w.Code != 200 || body != safetext.Text(body) {
			t.Errorf("%s: %d, a terminal obeys %q", target, w.Code, body)
		}
		found[target] = strings.Contains(body, `\x1b]0;owned`)
	}
	if !found["/claims"] || !found["/pool?"+vlan40] || !found["/address?address=10.40.0.1"] {
		t.Errorf("pages with the text: %v", found)
	}
	var claims struct {
		Items []struct{ Name, Reason string }
	}
	if err := json.Unmarshal(get(t, h, "/claims.json").Body.Bytes(), &claims); err != nil || len(claims.Items) != 2 || claims.Items[0].Reason+claims.Items[1].Reason != evil {
		t.Errorf("claims.json: %+v: %v", claims, err)
	}
	rows, err := csv.NewReader(strings.NewReader(get(t, h, "/pool.csv?"+vlan40).Body.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if strings.HasPrefix(cell, "=") {
				t.Errorf("pool.csv: the cell %q is a formula", cell)
			}
		}
	}
}
