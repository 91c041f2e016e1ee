package ledger

import "testing"

func TestOwners_AreNamedToThoseWhoMayKnowThem(t *testing.T) {
	claim := Key{Kind: "ipallocations.butler.butlerlabs.dev", Namespace: "team", Name: "db"}
	vip := Key{Kind: "proxyvips.novaedge.io", Name: "gateway"}
	ofService := Key{Kind: "proxyvips.novaedge.io", Name: "svc-team.web"}
	for _, tc := range []struct {
		owner    Key
		from     string
		wantText string
	}{
		{claim, "team", "by ipallocations/db"},
		{claim, "other", "in another namespace"},
		{claim, "", "by a namespaced object"},
		{claim, everywhere, "by ipallocations/db in namespace team"},
		{vip, "team", "by proxyvips/gateway"},
		{vip, "", "by proxyvips/gateway"},
		{ofService, "team", "by proxyvips/svc-team.web"},
		{ofService, "other", "for a Service of another namespace"},
		{ofService, "", "by proxyvips/svc-team.web"},
		{ofService, everywhere, "by proxyvips/svc-team.web"},
		{claim, Key{Kind: vip.Kind, Name: "mine"}.Place(), "by a namespaced object"},
		{vip, Key{Kind: vip.Kind, Name: "mine"}.Place(), "by proxyvips/gateway"},
		{ofService, Key{Kind: vip.Kind, Name: "mine"}.Place(), "for a Service of another namespace"},
		{ofService, Key{Kind: vip.Kind, Name: "svc-other.web"}.Place(), "for a Service of another namespace"},
		{ofService, Key{Kind: vip.Kind, Name: "svc-team.web.next"}.Place(), "by proxyvips/svc-team.web"},
		{ofService, claim.Place(), "by proxyvips/svc-team.web"},
	} {
		if got := tc.owner.SeenFrom(tc.from); got != tc.wantText {
			t.Errorf("%s from namespace %q: %q, want %q", tc.owner, tc.from, got, tc.wantText)
		}
	}
}
