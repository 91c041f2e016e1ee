package reconcilers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// The first request of a write may have landed and its answer be lost: that a later one is refused says nothing of it.
func TestARefusalEndsAGrantOnlyWhereItAnswersTheOnlyRequest(t *testing.T) {
	for _, tc := range []struct {
		what    string
		answers []int
		want    bool
	}{
		{"refused by a policy", []int{http.StatusForbidden}, true},
		{"invalid", []int{http.StatusUnprocessableEntity}, true},
		{"too large", []int{http.StatusRequestEntityTooLarge}, true},
		{"who writes is not known", []int{http.StatusUnauthorized}, true},
		{"overtaken", []int{http.StatusConflict}, true},
		{"overtaken, perhaps by itself", []int{http.StatusServiceUnavailable, http.StatusConflict}, false},
		{"not decided on", []int{http.StatusInternalServerError}, false},
		{"repeated, and then refused", []int{http.StatusServiceUnavailable, http.StatusForbidden}, false},
		{"held off, and then refused", []int{http.StatusTooManyRequests, http.StatusForbidden}, false},
		{"gone, or so says a webhook", []int{http.StatusNotFound}, true},
		{"repeated, and gone by then, or so says a webhook", []int{http.StatusServiceUnavailable, http.StatusNotFound}, false},
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
			ctx, requests := counted(t.Context())
			err = c.Patch(types.MergePatchType).AbsPath("/").Body([]byte("{}")).Do(ctx).Error()
			if got := neverStored(err, requests.Load()); got != tc.want || len(left) > 0 {
				t.Errorf("%s, HTTP/2 %t: never stored %t, want %t; %d answers left; %v", tc.what, http2, got, tc.want, len(left), err)
			}
			server.Close()
		}
	}
}
