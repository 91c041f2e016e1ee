package console

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// LocalGate admits the browser of one person to a handler on a loopback address. URL
// returns an address with a token. The gate accepts the token once, in exchange for a
// cookie.
//
// A request must have the gate's host and port in the header Host. Otherwise another site
// could send requests through a DNS name that resolves to this machine.
type LocalGate struct {
	handler http.Handler
	address netip.AddrPort
	hosts   []string // accepted values of the header Host
	cookie  string   // name, with the port: browsers send the cookies of a host to every port of the host
	session string   // value of the cookie
	mu      sync.Mutex
	token   string // "" after use
}

// openPath is the path at which the gate exchanges the token for the cookie.
const openPath = "/open"

// NewLocalGate returns a gate for a handler on a loopback address.
func NewLocalGate(handler http.Handler, address netip.AddrPort) (*LocalGate, error) {
	if !address.Addr().IsLoopback() {
		return nil, fmt.Errorf("%s is not a loopback address: use 127.0.0.1:%d", address, address.Port())
	}
	return &LocalGate{
		handler: handler, address: address, hosts: []string{address.String(), fmt.Sprintf("localhost:%d", address.Port())},
		cookie: fmt.Sprintf("butler-ipam-%d", address.Port()), session: rand.Text(), token: rand.Text(),
	}, nil
}

// URL returns the address to open in a browser.
func (g *LocalGate) URL() string {
	return "http://" + g.address.String() + link(openPath, "token", g.token)
}

// ServeHTTP implements http.Handler.
func (g *LocalGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	Protect(w.Header())
	cookie, err := r.Cookie(g.cookie)
	switch {
	case !slices.Contains(g.hosts, r.Host):
		http.Error(w, fmt.Sprintf("this is not the console of %q: use http://%s", r.Host, g.address), http.StatusMisdirectedRequest)
	case r.URL.Path == openPath && r.Method == http.MethodGet:
		g.open(w, r)
	case err != nil, !equal(cookie.Value, g.session):
		http.Error(w, "open the address that kubectl ipam ui has printed: its token admits one browser", http.StatusUnauthorized)
	default:
		g.handler.ServeHTTP(w, r)
	}
}

// open sets the cookie if the token is right and not yet used.
func (g *LocalGate) open(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	admitted := g.token != "" && equal(r.URL.Query().Get("token"), g.token)
	if admitted {
		g.token = ""
	}
	g.mu.Unlock()
	if !admitted {
		http.Error(w, "this token is wrong or has been used: run kubectl ipam ui again", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func equal(x, y string) bool { return subtle.ConstantTimeCompare([]byte(x), []byte(y)) == 1 }
