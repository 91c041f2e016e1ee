package console

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/safetext"
)

const (
	// maxQuery bounds the query of a request, and maxValue each value in the query, in
	// bytes.
	maxQuery = 4096
	maxValue = 2048
	// refreshName is the name of the value with the seconds between refreshes. minRefresh
	// limits the cost of a page that stays open.
	refreshName = "refresh"
	minRefresh  = 5
	maxRefresh  = 300
	someRefresh = 10 // the period in the link "refresh"
)

//go:embed templates
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"link": link, "listed": report.Listed}).ParseFS(files, "templates/*.html"))

// Options are the sources of the data that a console shows.
type Options struct {
	// View returns the data for a request. The console calls View once for each request,
	// not concurrently, and uses the view until the next call.
	View func(context.Context) (View, error)
	// Health reads the objects that a check needs in addition to the inventory, and
	// returns a function that checks an inventory. With nil, the console checks only the
	// inventory. The console may call Health concurrently: other pages do not wait for
	// the reads.
	Health func(context.Context) (func(*inventory.Inventory) health.Report, error)
	// Events returns the events about a pool, the newest first, and a note about events
	// that are not read. With nil, pages have no events.
	Events func(context.Context, *inventory.Pool) (list []inventory.Event, note string)
	// Tenant returns the stored objects of a tenant, except its claims. With nil, pages
	// show only the claims.
	Tenant  func(ctx context.Context, namespace, name string) inventory.Tenant
	Now     func() time.Time
	Version string // version of the program
}

// View is the data that a request may show.
type View struct {
	Inventory *inventory.Inventory
	Warnings  []string // objects that the inventory lacks, and why
	// Current is the time until which the inventory is current, and Cause the reason why
	// the inventory is not current now: "the API server cannot be reached". A zero time
	// means that the inventory is current now.
	Current time.Time
	Cause   string
	// Namespace is the namespace of the resources that the reader may not list in all
	// namespaces. With ChooseNamespace, the pages have a form for the namespace, which
	// sends the value "namespace" in the query.
	Namespace       string
	ChooseNamespace bool
}

// console serves the pages.
type console struct {
	Options
	mu sync.Mutex // held while a request uses the inventory
}

// New returns the handler of the pages. The handler shows the whole inventory to every
// caller: put a gate before the handler.
func New(o Options) http.Handler {
	c := &console{Options: o}
	mux := http.NewServeMux()
	add := func(path string, prepare preparation) {
		mux.Handle(path, c.serve(prepare, formatHTML))
		mux.Handle(path+".json", c.serve(prepare, formatJSON))
	}
	for path, p := range map[string]page{
		"/pools": (*request).pools, "/pool": (*request).pool, "/plan": (*request).plan, "/fit": (*request).fit, "/address": (*request).address,
		"/tenant": (*request).tenant, "/claims": (*request).claims,
	} {
		add(path, ready(p))
	}
	add("/health", c.prepareHealth)
	mux.Handle("/{$}", c.serve(ready((*request).pools), formatHTML))
	mux.Handle("/pool.csv", c.serve(ready((*request).pool), formatCSV))
	mux.Handle("/search", c.serve(ready((*request).search), formatHTML))
	mux.HandleFunc("/style.css", serveStyle)
	mux.HandleFunc("/favicon.ico", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.Handle("/", c.serve(ready(func(*request) (*answer, error) {
		return nil, &statusError{http.StatusNotFound, "no such page"}
	}), formatHTML))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Protect(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the console only shows: use GET", http.StatusMethodNotAllowed)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Protect sets the headers that forbid the browser to run scripts, embed the page in a
// frame, cache the page, and send the address of the page to other sites.
func Protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func serveStyle(w http.ResponseWriter, _ *http.Request) {
	style, err := files.ReadFile("templates/style.css")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(style)
}

// format is the format of a response.
type format string

const (
	formatHTML format = "html"
	formatJSON format = "json"
	formatCSV  format = "csv"
)

// parameters maps a page to the values that a query of the page may have, in addition to
// commonParameters.
var parameters = map[string][]string{
	"/pools": {}, "/pool": {"in", "page", "pool"}, "/plan": {"cidr", "pool", "ranges", "reserve", "unreserve"}, "/fit": {"count", "loadbalancer", "nodes", "pool"},
	"/address": {"address"}, "/tenant": {"page", "tenant"}, "/claims": {"kind", "page", "pool", "state", "tenant"}, "/health": {"area", "page"}, "/search": {"q"},
}

// commonParameters are the values that the query of every page may have. The gate of the
// console in the cluster reads the namespace.
var commonParameters = []string{"namespace", refreshName}

// checkParameters returns an error for a value that the page of a path does not know.
// Reason: a page that ignores an unknown filter shows wrong rows.
func checkParameters(path string, query url.Values) error {
	page := path
	for _, f := range []format{formatJSON, formatCSV} {
		page = strings.TrimSuffix(page, "."+string(f))
	}
	if page == "/" {
		page = "/pools"
	}
	known, isPage := parameters[page]
	if !isPage {
		return nil
	}
	known = slices.Sorted(slices.Values(append(slices.Clone(known), commonParameters...)))
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, name) {
			return badRequest("%.100q is not a parameter of %s: use %s", name, path, strings.Join(known, ", "))
		}
	}
	return nil
}

// page computes the answer to a request.
type page func(*request) (*answer, error)

// preparation reads the data that a page needs in addition to the inventory. Other
// requests use the inventory meanwhile.
type preparation func(context.Context) page

// ready returns the preparation of a page that needs only the inventory.
func ready(p page) preparation { return func(context.Context) page { return p } }

// request is a request for a page.
type request struct {
	*inventory.Inventory
	ctx     context.Context
	options *Options
	format  format
	query   url.Values
	now     time.Time
}

// answer is the content of a response, in the format of the request, or a redirection.
type answer struct {
	template string
	title    string
	data     any        // data of the template
	also     []format   // further formats of the page
	document any        // body in JSON
	rows     [][]string // body in CSV
	redirect string
}

// layout is the data of every template.
type layout struct {
	Title, Version string
	Query          string // text in the search box
	JSON, CSV      string // addresses of the page in JSON and CSV; "" if the page lacks the format
	Refresh        int    // seconds until the browser loads the page again; 0 for never
	Toggle         string // address of the page with refresh switched on or off
	View           View
	At             time.Time
	Page           any // data of the page
}

// statusError is an error with the HTTP status of the response.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

func badRequest(format string, values ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, values...)}
}

func (c *console) serve(prepare preparation, f format) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, l, err := c.answer(r, prepare, f)
		for _, warning := range l.View.Warnings {
			w.Header().Add("Warning", fmt.Sprintf("299 - %q", warning))
		}
		var problem *statusError
		code := http.StatusOK
		switch {
		case errors.As(err, &problem):
			code = problem.code
		case err != nil:
			code = http.StatusInternalServerError
		case a.redirect != "":
			http.Redirect(w, r, a.redirect, http.StatusSeeOther)
			return
		}
		if err != nil {
			if f != formatHTML {
				http.Error(w, safetext.Text(err.Error()), code)
				return
			}
			a = &answer{template: "error.html", title: http.StatusText(code), data: err.Error()}
		}
		body, contentType, err := c.render(r, a, l, f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(code)
		_, _ = w.Write(body)
	})
}

// answer computes the answer to a request. The answer contains no reference to the
// inventory, because the next request may use the inventory while the answer is written.
func (c *console) answer(r *http.Request, prepare preparation, f format) (*answer, layout, error) {
	l := layout{Version: c.Version}
	query, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		l.Refresh, err = parseRefresh(query.Get(refreshName))
	}
	if err == nil {
		err = checkParameters(r.URL.Path, query)
	}
	if err != nil {
		return nil, l, err
	}
	p := prepare(r.Context())
	c.mu.Lock()
	defer c.mu.Unlock()
	view, err := c.View(r.Context())
	if err != nil {
		return nil, l, &statusError{http.StatusBadGateway, err.Error()}
	}
	l.View, l.At = view, c.Now().UTC().Truncate(time.Second)
	if !view.Current.IsZero() {
		l.At = view.Current.UTC().Truncate(time.Second)
		l.View.Warnings = append([]string{fmt.Sprintf("%s since %s: the page shows the data of that time", view.Cause, l.At.Format("15:04:05Z on 2006-01-02"))}, view.Warnings...)
	}
	a, err := p(&request{view.Inventory, r.Context(), &c.Options, f, query, c.Now()})
	return a, l, err
}

func parseQuery(raw string) (url.Values, error) {
	if len(raw) > maxQuery {
		return nil, &statusError{http.StatusRequestURITooLong, fmt.Sprintf("the query has %d bytes: use at most %d", len(raw), maxQuery)}
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, badRequest("the query is not valid: %v", err)
	}
	for name, values := range query {
		if len(values) > 1 {
			return nil, badRequest("%.100q is given %d times: give it once", name, len(values))
		}
		if len(values[0]) > maxValue {
			return nil, badRequest("%.100q has %d bytes: use at most %d", name, len(values[0]), maxValue)
		}
	}
	return query, nil
}

// parseRefresh returns the seconds between refreshes; 0 for never.
func parseRefresh(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < minRefresh || n > maxRefresh {
		return 0, badRequest("%s=%.100s: use a number of seconds from %d to %d", refreshName, text, minRefresh, maxRefresh)
	}
	return n, nil
}

// value returns a value of the query without surrounding blanks.
func (r *request) value(name string) string { return strings.TrimSpace(r.query.Get(name)) }

func (c *console) render(r *http.Request, a *answer, l layout, f format) (body []byte, contentType string, err error) {
	var out bytes.Buffer
	switch f {
	case formatJSON:
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		document := a.document
		if !l.View.Current.IsZero() {
			document, err = withField(document, "notCurrentSince", l.At)
		}
		if err == nil {
			err = encoder.Encode(document)
		}
		return safetext.JSON(out.Bytes()), "application/json", err
	case formatCSV:
		err = safetext.NewCSVWriter(&out).WriteAll(a.rows)
		return out.Bytes(), "text/csv; charset=utf-8", err
	}
	l.Title, l.Query, l.Page = a.title, r.URL.Query().Get("q"), a.data
	path := r.URL.Path
	if path == "/" {
		path = "/pools"
	}
	query, values := r.URL.RawQuery, r.URL.Query()
	if values.Has(refreshName) {
		values.Del(refreshName)
		query = values.Encode()
	}
	if slices.Contains(a.also, formatJSON) {
		l.JSON = withQuery(path+".json", query)
	}
	if slices.Contains(a.also, formatCSV) {
		l.CSV = withQuery(path+".csv", query)
	}
	if l.Toggle = withQuery(path, query); l.Refresh == 0 {
		values.Set(refreshName, strconv.Itoa(someRefresh))
		l.Toggle = withQuery(path, values.Encode())
	}
	err = templates.ExecuteTemplate(&out, a.template, l)
	return []byte(safetext.Text(out.String())), "text/html; charset=utf-8", err
}

// withField returns a document with one more field.
func withField(document any, name string, value any) (any, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields[name], err = json.Marshal(value)
	return fields, err
}

func withQuery(path, query string) string {
	if query == "" {
		return path
	}
	return path + "?" + query
}

// link returns the address of a page with a query. pairs are names and values in turn;
// names with empty values are left out.
func link(path string, pairs ...any) string {
	query := url.Values{}
	for n := 0; n+1 < len(pairs); n += 2 {
		if value := fmt.Sprint(pairs[n+1]); value != "" {
			query.Set(fmt.Sprint(pairs[n]), value)
		}
	}
	return withQuery(path, query.Encode())
}
