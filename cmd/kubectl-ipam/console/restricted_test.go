package console

import (
	"encoding/json"
	"html"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// keyOf returns the key of an object.
func keyOf(t *testing.T, o metav1.Object) inventory.Key {
	t.Helper()
	i := inventory.New(now, nil)
	i.Add(o)
	for _, p := range i.Pools() {
		return p.Key
	}
	for _, c := range i.Claims() {
		return c.Key
	}
	t.Fatalf("%s is neither a pool nor a claim", o.GetName())
	return inventory.Key{}
}

// A reader who may list only some objects sees the numbers and states that every reader
// sees, and on no page the name of a hidden object.
func TestPages_OfRestrictedReader(t *testing.T) {
	all := objects()
	full := inventory.New(now, nil)
	for _, o := range all {
		full.Add(o)
	}
	random := rand.New(rand.NewPCG(1, 2))
	checked := map[string]int{} // name -> number of inventories that hide the name
	for range 12 {
		mayRead := map[inventory.Key]bool{}
		var visible []metav1.Object
		for _, o := range all {
			if random.IntN(2) == 0 {
				mayRead[keyOf(t, o)] = true
				visible = append(visible, o)
			}
		}
		i := inventory.NewRestricted(now, func(k inventory.Key) bool { return mayRead[k] })
		for _, n := range random.Perm(len(all)) {
			i.Add(all[n])
		}
		for _, p := range i.Pools() {
			if got, want := i.Usage(p.Key), full.Usage(p.Key); got != want {
				t.Fatalf("%s: usage %+v, want %+v", p.Key, got, want)
			}
			if got, want := statesOf(i, p), statesOf(full, p); !slices.Equal(got, want) {
				t.Fatalf("%s: states\n%q\nwant\n%q", p.Key, got, want)
			}
		}
		text, err := json.Marshal(visible) // names that the reader may know
		if err != nil {
			t.Fatal(err)
		}
		pages := strings.Join(crawl(t, handlerOf(i), 50), "\n")
		for _, o := range all {
			name := o.GetName()
			if mayRead[keyOf(t, o)] || strings.Contains(string(text), `"`+name+`"`) || slices.Contains([]string{"vip", "v6"}, name) { // "vip" and "v6" are words on every page
				continue
			}
			checked[name]++
			if at := indexWord(pages, name); at >= 0 {
				t.Fatalf("%s is named: …%s…", name, pages[max(0, at-300):min(len(pages), at+100)])
			}
		}
	}
	if len(checked) < 8 {
		t.Errorf("only %v were ever hidden", checked)
	}
}

// indexWord returns the index of a word in a text, or -1. A regular expression takes ten
// times as long.
func indexWord(text, word string) int {
	isLetter := func(at int) bool {
		return at >= 0 && at < len(text) && ('a' <= text[at] && text[at] <= 'z' || text[at] == '-')
	}
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return -1
		}
		if at += from; !isLetter(at-1) && !isLetter(at+len(word)) {
			return at
		}
		from = at + 1
	}
}

// statesOf returns the runs of addresses of a pool with their states.
func statesOf(i *inventory.Inventory, p *inventory.Pool) (list []string) {
	for _, g := range i.Segments(p.Domain, p.Ranges) {
		if len(g.Rivals) > 0 {
			g.State += " in conflict"
		}
		list = append(list, g.Range.String()+" "+string(g.State))
	}
	return list
}

// crawl returns the first pages that links lead to, with the JSON of some pages, the
// plans and the fits of pools.
func crawl(t *testing.T, h http.Handler, most int) (pages []string) {
	t.Helper()
	queue := []string{"/pools", "/claims", "/pools.json", "/claims.json", "/address.json?address=10.40.0.0/26", "/search?q=a", "/search?q=e", "/plan?reserve=10.40.0.8/29&" + vlan40, "/plan.json?cidr=10.0.0.0/9&pool=NetworkPool/ns/corp"}
	seen := map[string]bool{}
	for ; len(queue) > 0 && len(seen) < most; queue = queue[1:] {
		if seen[queue[0]] || queue[0] == "/style.css" {
			continue
		}
		seen[queue[0]] = true
		w := get(t, h, queue[0])
		if w.Code == http.StatusNotFound { // the page repeats the name in the request
			continue
		}
		pages = append(pages, w.Body.String())
		for _, match := range regexp.MustCompile(`href="([^"#]+)"`).FindAllStringSubmatch(w.Body.String(), -1) {
			queue = append(queue, html.UnescapeString(match[1]))
		}
	}
	return pages
}

// If the reader may not list a claim, its addresses are owned by an object without a
// name.
func TestAddress_OfHiddenClaim(t *testing.T) {
	i := inventory.NewRestricted(now, func(k inventory.Key) bool { return k.Name == "vlan40" })
	for _, o := range objects() {
		i.Add(o)
	}
	h := handlerOf(i)
	if page := mustGet(t, h, "/address?address=10.40.0.9"); !strings.Contains(page, "owned by an object that you may not list") || !strings.Contains(page, "(IPAllocation)") {
		t.Errorf("%s", page)
	}
	if document := mustGet(t, h, "/address.json?address=10.40.0.9"); !strings.Contains(document, `"state": "`+string(state.SegmentOwned)) || !strings.Contains(document, `"name": ""`) {
		t.Errorf("%s", document)
	}
	page := mustGet(t, h, "/pool?"+vlan40)
	if square := `<rect class="other"`; strings.Count(page, square) < 6 || !strings.Contains(page, "by 3 claims") {
		t.Errorf("want squares %s, and the owners counted: %s", square, page)
	}
	if document := mustGet(t, h, "/claims.json"); !strings.Contains(document, `"items": []`) {
		t.Errorf("%s", document)
	}
}
