package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A page denies a parameter that it does not know, and a filter that names no pool. The
// message names the parameter and the permitted ones.
func TestPages_DenyUnknownParameters(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	for target, test := range map[string]struct {
		code int
		want string
	}{
		"/claims.json?pending=maybe":                           {http.StatusBadRequest, `"pending" is not a parameter of /claims.json: use kind, namespace, page, pool, refresh, state, tenant`},
		"/plan.json?reserve=10.40.0.8/29&delete=1&" + vlan40:   {http.StatusBadRequest, `"delete" is not a parameter of /plan.json: use cidr, namespace, pool, ranges, refresh, reserve, unreserve`},
		"/?pool=NetworkPool/ns/vlan40":                         {http.StatusBadRequest, "is not a parameter of /: use namespace, refresh"},
		"/pool.csv?IN=10.40.0.0/24&" + vlan40:                  {http.StatusBadRequest, `"IN" is not a parameter of /pool.csv: use in, namespace, page, pool, refresh`},
		"/claims.json?pool=bogus":                              {http.StatusNotFound, "pool=bogus: no such pool among those that you may read"},
		"/claims.json?namespace=ns&refresh=10&pool=IPPool/x/y": {http.StatusNotFound, "pool=IPPool/x/y: no such pool"},
		"/claims.json?pool=networkpool/ns/VLAN40":              {http.StatusOK, `"items"`},
	} {
		if w := get(t, h, target); w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s: status %d: %s\nwant %d: %s", target, w.Code, w.Body, test.code, test.want)
		}
	}
	for _, page := range crawl(t, h, 200) {
		if strings.Contains(page, "is not a parameter of") {
			t.Errorf("a link leads to a denied page: %s", page)
		}
	}
}

// Pages that are not current show since when, in HTML, in JSON and in the Warning header.
func TestPages_ShowSinceWhenTheyAreNotCurrent(t *testing.T) {
	i := newInventory(t, objects())
	h := New(Options{
		View: func(context.Context) (View, error) {
			return View{Inventory: i, Warnings: []string{"not read"}, Current: now.Add(-75 * time.Second), Cause: "the API server cannot be reached"}, nil
		},
		Now: func() time.Time { return now }, Version: "test",
	})
	const notice = "the API server cannot be reached since 03:02:50Z on 2026-01-02: the page shows the data of that time"
	for _, target := range []string{"/pools", "/claims", "/health", "/pool?" + vlan40, "/address?address=10.40.0.12"} {
		w := get(t, h, target)
		page := w.Body.String()
		if w.Code != http.StatusOK || !strings.Contains(page, "<li>Warning: "+notice+"</li><li>Warning: not read</li>") || !strings.Contains(page, "As of <time datetime=\"2026-01-02T03:02:50Z\">2026-01-02 03:02:50Z</time>") {
			t.Errorf("%s: status %d: %s", target, w.Code, page)
		}
	}
	w := get(t, h, "/pools.json")
	var document struct {
		Kind            string
		NotCurrentSince time.Time
		Items           []struct{ Name string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if document.Kind != "PoolList" || len(document.Items) != len(i.Pools()) || !document.NotCurrentSince.Equal(now.Add(-75*time.Second)) || !strings.Contains(w.Header().Get("Warning"), notice) {
		t.Errorf("%+v %v", document, w.Header())
	}
	if w := get(t, handlerOf(i), "/pools.json"); strings.Contains(w.Body.String(), "notCurrentSince") {
		t.Error("a current page has notCurrentSince")
	}
}
