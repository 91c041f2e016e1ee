package claims

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The first request of a write may be stored while its response is lost: the denial of a
// repeated request does not prove that nothing is stored.
func TestNeverStored_OnlyAfterOneRequest(t *testing.T) {
	for _, tc := range []struct {
		what    string
		answers []int
		want    bool
	}{
		{"refused by a policy", []int{http.StatusForbidden}, true},
		{"invalid", []int{http.StatusUnprocessableEntity}, true},
		{"too large", []int{http.StatusRequestEntityTooLarge}, true},
		{"unauthorized", []int{http.StatusUnauthorized}, true},
		{"stale", []int{http.StatusConflict}, true},
		{"repeated, and stale, perhaps by the first request", []int{http.StatusServiceUnavailable, http.StatusConflict}, false},
		{"internal error", []int{http.StatusInternalServerError}, false},
		{"repeated, and then refused", []int{http.StatusServiceUnavailable, http.StatusForbidden}, false},
		{"too many requests, and then refused", []int{http.StatusTooManyRequests, http.StatusForbidden}, false},
		{"not found, perhaps from a webhook", []int{http.StatusNotFound}, true},
		{"repeated, and then not found, perhaps from a webhook", []int{http.StatusServiceUnavailable, http.StatusNotFound}, false},
	} {
		for _, http2 := range []bool{false, true} {
			left := tc.answers
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if len(left) > 1 {
					w.Header().Set("Retry-After", "0")
				}
				w.WriteHeader(left[0])
				left = left[1:]
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			c, err := rest.UnversionedRESTClientFor(&rest.Config{
				Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
				ContentConfig: rest.ContentConfig{GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, requests := countRequests(t.Context())
			err = c.Patch(types.MergePatchType).AbsPath("/").Body([]byte("{}")).Do(ctx).Error()
			if got := neverStored(err, requests.Load()); got != tc.want || len(left) > 0 {
				t.Errorf("%s, HTTP/2 %t: never stored %t, want %t; %d responses left; %v", tc.what, http2, got, tc.want, len(left), err)
			}
			server.Close()
		}
	}
}
