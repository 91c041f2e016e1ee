package console

import (
	"context"
	"errors"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A page refreshes if its address contains the value refresh, also after an error. Links
// to other pages do not contain the value.
func TestRefresh(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	hrefs := regexp.MustCompile(`href="([^"]*)"`)
	for _, target := range []string{"/", "/pools", "/pool?" + vlan40, "/pool?in=10.40.0.0/28&" + vlan40, "/address?address=10.40.0.12", "/tenant?tenant=team-1/web", "/claims?state=not-ready", "/health", "/search?q=team"} {
		still := mustGet(t, h, target)
		if strings.Contains(still, "http-equiv") {
			t.Fatalf("%s refreshes", target)
		}
		toggle := regexp.MustCompile(`<a href="([^"]*)">refresh every 10 s</a>`).FindStringSubmatch(still)
		if toggle == nil {
			t.Fatalf("%s offers no refresh", target)
		}
		page := mustGet(t, h, html.UnescapeString(toggle[1]))
		if !strings.Contains(page, `<meta http-equiv="refresh" content="10">`) || !strings.Contains(page, "every 10 s") || mainOf(page) != mainOf(still) {
			t.Errorf("%s: the page that refreshes differs", target)
		}
		for _, match := range hrefs.FindAllStringSubmatch(page, -1) {
			if strings.Contains(match[1], "refresh") {
				t.Errorf("%s: the link %s refreshes", target, match[1])
			}
		}
		stop := regexp.MustCompile(`<a href="([^"]*)">stop refreshing</a>`).FindStringSubmatch(page)
		if stop == nil || mainOf(mustGet(t, h, html.UnescapeString(stop[1]))) != mainOf(still) {
			t.Errorf("%s: stop refreshing: %q", target, stop)
		}
	}

	for value, want := range map[string]int{"": 200, "5": 200, "300": 200, "4": 400, "301": 400, "-5": 400, "x": 400, "5;url=http://evil.example": 400, "99999999999999999999": 400} {
		w := get(t, h, "/pools?refresh="+strings.ReplaceAll(value, ";", "%3B"))
		refreshes := strings.Contains(w.Body.String(), `<meta http-equiv="refresh" content="`+value+`">`)
		if w.Code != want || refreshes != (want == 200 && value != "") {
			t.Errorf("refresh=%s: status %d, refreshes %v", value, w.Code, refreshes)
		}
	}

	broken := New(Options{
		View: func(context.Context) (View, error) { return View{}, errors.New("no route") },
		Now:  func() time.Time { return now },
	})
	if w := get(t, broken, "/pools?refresh=30"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), `content="30"`) || !strings.Contains(w.Body.String(), `<a href="/pools">stop refreshing</a>`) {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}
