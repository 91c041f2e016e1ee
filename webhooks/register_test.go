package webhooks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// paths is what Register mounts.
type paths map[string]http.Handler

func (p paths) Register(path string, hook http.Handler) { p[path] = hook }

// follower is the webhooks of a replica that has not taken the journal.
func follower(t *testing.T, stopping <-chan struct{}) (paths, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	mounted := paths{}
	Register(mounted, Options{
		Ledger: ledger.New(ledger.Config{
			Identity: "follower", ClaimResources: []string{butler.ResourceIPAllocation}, PoolResources: []string{butler.ResourceNetworkPool}, Log: logr.Discard(),
		}),
		APIs:     []API{Butler, NovaEdge, Metal3, ClusterAPI},
		Stopping: stopping,
		Metrics:  review.NewMetrics(reg),
		Log:      logr.Discard(),
	})
	return mounted, reg
}

func TestRegister_MountsThePathsOfTheWebhookConfigurations(t *testing.T) {
	file, err := os.Open("../config/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	named := map[string]bool{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(file))
	for {
		document, err := documents.Read()
		if err != nil {
			break
		}
		// Validating and mutating webhooks have the fields that matter here in common.
		var configuration admissionregistrationv1.ValidatingWebhookConfiguration
		if err := utilyaml.Unmarshal(document, &configuration); err != nil {
			t.Fatal(err)
		}
		for _, webhook := range configuration.Webhooks {
			named[*webhook.ClientConfig.Service.Path] = true
		}
	}
	mounted, _ := follower(t, nil)
	want := map[string]bool{}
	for path := range mounted {
		want[path] = true
	}
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("paths (-mounted +named):\n%s", diff)
	}
}

// reviewOf is an AdmissionReview of an IPAllocation.
func reviewOf(operation, object, oldObject string) string {
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":%q,"namespace":"team-a","name":"a",
		"kind":{"group":"butler.butlerlabs.dev","version":"v1alpha1","kind":"IPAllocation"},"object":%s,"oldObject":%s}}`, operation, object, oldObject)
}

func post(hook http.Handler, target, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, req)
	return w
}

func answered(t *testing.T, w *httptest.ResponseRecorder) *admissionv1.AdmissionResponse {
	t.Helper()
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("answer %d %q: %v", w.Code, w.Body, err)
	}
	return answer.Response
}

const (
	waiting = `{"metadata":{"name":"a"},"spec":{` + spec + `,"count":4}}`
	holding = `{"metadata":{"name":"a","uid":"1"},"spec":{` + spec + `,"count":4,"pinnedRange":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}},"status":{"phase":"Allocated"}}`
)

func TestSilentCaller_IsAnsweredWithBadRequest(t *testing.T) {
	mounted, _ := follower(t, nil)
	server := httptest.NewServer(mounted[MutateIPAllocation])
	defer server.Close()
	for _, sent := range []string{"", `{"apiVersion":`} {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		fmt.Fprintf(connection, "POST /?timeout=400ms HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n%s", sent)
		_ = connection.SetReadDeadline(time.Now().Add(time.Minute))
		answer, err := io.ReadAll(connection)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("after %q the server says %q: %v", sent, answer, err)
		}
	}
}

func TestFollower_SendsTheAPIServerToAnotherReplica(t *testing.T) {
	mounted, _ := follower(t, nil)
	w := post(mounted[MutateIPAllocation], MutateIPAllocation+"?timeout=10s", reviewOf("CREATE", waiting, "null"))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "0" || w.Header().Get("Connection") != "close" {
		t.Errorf("got %d %v, want 503 with Retry-After 0 and Connection close", w.Code, w.Header())
	}
	if !strings.Contains(w.Body.String(), "does not lead") {
		t.Errorf("body %q does not say why", w.Body)
	}
}

func TestFollower_DeniesWithRetryNearTheDeadline(t *testing.T) {
	mounted, _ := follower(t, nil)
	w := post(mounted[MutateIPAllocation], MutateIPAllocation+"?timeout=600ms", reviewOf("CREATE", waiting, "null"))
	answer := answered(t, w)
	if answer.Allowed || answer.UID != "u1" || answer.Result.Code != http.StatusServiceUnavailable || answer.Result.Details.RetryAfterSeconds != 1 {
		t.Errorf("got %d %+v, want a refusal with code 503 and retryAfterSeconds 1", w.Code, answer)
	}
}

func TestRepeatedCall_HasTheDeadlineOfItsFirstTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounted, _ := follower(t, nil)
		call := reviewOf("CREATE", waiting, "null")
		another := strings.Replace(call, `"uid":"u1"`, `"uid":"u2"`, 1)
		for _, tc := range []struct {
			after    time.Duration
			call     string
			wantCode int // of HTTP
		}{
			{0, call, http.StatusServiceUnavailable},
			{5 * time.Second, call, http.StatusServiceUnavailable},
			{4500 * time.Millisecond, another, http.StatusServiceUnavailable},
			{0, call, http.StatusOK},
			{0, another, http.StatusServiceUnavailable},
		} {
			time.Sleep(tc.after)
			w := post(mounted[MutateIPAllocation], MutateIPAllocation+"?timeout=10s", tc.call)
			if w.Code != tc.wantCode {
				t.Errorf("%s later: got %d %s, want %d", tc.after, w.Code, w.Body, tc.wantCode)
			}
		}
	})
}

func TestFirstEntry_FailsWithoutRetryAfter(t *testing.T) {
	mounted, _ := follower(t, nil)
	w := post(mounted[MutateIPAllocation+firstEntrySuffix], MutateIPAllocation+firstEntrySuffix+"?timeout=500ms", reviewOf("CREATE", waiting, "null"))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" {
		t.Errorf("got %d, Retry-After %q: want 503 without, which the API server ignores here", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestSecondEntry_ClosesItsConnection(t *testing.T) {
	mounted, _ := follower(t, nil)
	for path, want := range map[string]string{MutateIPAllocation: "close", MutateIPAllocation + firstEntrySuffix: "", ValidateIPAllocation: ""} {
		w := post(mounted[path], path+"?timeout=3s", reviewOf("UPDATE", holding, holding))
		if got := w.Header().Get("Connection"); !answered(t, w).Allowed || got != want {
			t.Errorf("%s: Connection %q, want %q: one that is kept may have died with the replica that failed the first call", path, got, want)
		}
	}
}

func TestStoppingReplica_SendsCallsToAnotherReplica(t *testing.T) {
	stopping := make(chan struct{})
	close(stopping)
	mounted, _ := follower(t, stopping)
	// The second time, the call has found nobody else either.
	for _, after := range []string{"0", "1", "1"} {
		w := post(mounted[MutateIPAllocation], MutateIPAllocation+"?timeout=10s", reviewOf("CREATE", waiting, "null"))
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != after || w.Header().Get("Connection") != "close" {
			t.Errorf("create: got %d %v, want 503 with Retry-After %s and Connection close", w.Code, w.Header(), after)
		}
	}
	w := post(mounted[MutateIPAllocation+firstEntrySuffix], MutateIPAllocation+firstEntrySuffix+"?timeout=3s", reviewOf("UPDATE", holding, holding))
	if !answered(t, w).Allowed || w.Header().Get("Connection") != "close" {
		t.Errorf("update: got %d %v, want it allowed, with Connection close", w.Code, w.Header())
	}
}

func TestFollower_AnswersWithoutTheJournal(t *testing.T) {
	mounted, _ := follower(t, nil)
	going := strings.Replace(holding, `"uid":"1"`, `"uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z"`, 1)
	for name, tc := range map[string]struct {
		path, body string
		wantCode   int32
		wantPatch  string
	}{
		"an invalid create": {MutateIPAllocation, reviewOf("CREATE", `{"metadata":{"name":"a"},"spec":{}}`, "null"), 422, ""},
		"an update that leaves the range out": {MutateIPAllocation, reviewOf("UPDATE", waiting, holding), 200,
			`[{"op":"add","path":"/spec/pinnedRange","value":{"startAddress":"10.0.0.0","endAddress":"10.0.0.3"}}]`},
		"an update of other things":      {MutateIPAllocation, reviewOf("UPDATE", holding, holding), 200, ""},
		"the end of an object":           {MutateIPAllocation, reviewOf("UPDATE", strings.Replace(going, `"count":4`, `"count":5`, 1), holding), 200, ""},
		"an object of another kind":      {ValidateNetworkPool, reviewOf("CREATE", waiting, "null"), 400, ""},
		"an update that moves a claim":   {ValidateIPAllocation, reviewOf("UPDATE", strings.Replace(holding, "vlan40", "vlan41", 1), holding), 422, ""},
		"a claim that waits for a pool":  {ValidateIPAllocation, reviewOf("CREATE", waiting, "null"), 200, ""},
		"a delete where none is handled": {MutateIPAllocation, reviewOf("DELETE", "null", holding), 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := answered(t, post(mounted[tc.path], tc.path+"?timeout=10s", tc.body))
			if answer.Result.Code != tc.wantCode || answer.Allowed != (tc.wantCode == 200) || string(answer.Patch) != tc.wantPatch {
				t.Errorf("got %v %s %s, want %d %s", answer.Allowed, answer.Result, answer.Patch, tc.wantCode, tc.wantPatch)
			}
		})
	}
}

func TestLargeReview_IsDeniedWithTheLimit(t *testing.T) {
	mounted, _ := follower(t, nil)
	w := post(mounted[MutateIPAllocation], MutateIPAllocation, `{"kind":"`+strings.Repeat("x", 3<<20))
	if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "3145728 bytes") {
		t.Errorf("got %d %q, want 413 naming the limit", w.Code, w.Body)
	}
}

func TestMetrics_LabelsDoNotDependOnTextOfCallers(t *testing.T) {
	mounted, reg := follower(t, nil)
	for _, operation := range []string{"CREATE", "UPDATE", "CONNECT", "no such thing"} {
		post(mounted[ValidateIPAllocation], ValidateIPAllocation, reviewOf(operation, waiting, holding))
	}
	post(mounted[ValidateIPAllocation], ValidateIPAllocation, "no review")
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "butler_ipam_admission_duration_seconds" {
		t.Fatalf("metrics %v, error %v: want butler_ipam_admission_duration_seconds alone", families, err)
	}
	var got []string
	for _, m := range families[0].GetMetric() {
		var labels bytes.Buffer
		for _, l := range m.GetLabel() {
			fmt.Fprintf(&labels, "%s ", l.GetValue())
		}
		got = append(got, fmt.Sprintf("%s%d", &labels, m.GetHistogram().GetSampleCount()))
	}
	slices.Sort(got)
	want := []string{
		"CREATE allowed validate-ipallocation 1", "OTHER allowed validate-ipallocation 1", "OTHER broken validate-ipallocation 1", "OTHER denied validate-ipallocation 1", "UPDATE denied validate-ipallocation 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

// What is said of each takes a thousand times its size.
func TestMetadataFaults_AreBounded(t *testing.T) {
	c := &v1alpha1.IPAllocation{}
	c.Name, c.Namespace, c.Finalizers = "web", "team-a", make([]string, 900_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	faults := findMetadataFaults(c)
	runtime.ReadMemStats(&after)
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), "metadata.finalizers: Too many: 900000: must have at most 4096 items") {
		t.Errorf("%d faults: %.200v", len(faults), faults)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("it took %d bytes to find", grown)
	}
}
