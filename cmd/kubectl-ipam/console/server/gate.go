package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/console"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	// gatePath is a non-resource URL. A person needs the right to get gatePath. The chart
	// has a ClusterRole with this right.
	gatePath = "/butler-ipam/console"
	// reviewLife is how long the gate caches the review of a token or of a right. So a
	// withdrawn right ends after reviewLife at the latest.
	reviewLife = 30 * time.Second
	// reviewTimeout bounds the review of a token.
	reviewTimeout = 10 * time.Second
	// maxRequests bounds the concurrent requests of persons whose token the API server
	// has accepted.
	maxRequests = 64
	// namespaceValue is the name of the value in the query by which a person chooses a
	// namespace, and of the cookie that keeps the choice.
	namespaceValue = "namespace"
)

// gate admits a person with a valid token and the right to get gatePath, and adds the
// reader to the context of the request.
type gate struct {
	handler  http.Handler
	tokens   authenticator.Token
	rights   authorizer.Authorizer
	sources  *sources
	requests chan struct{} // contains an element for each request in progress
	log      logr.Logger
}

func newGate(handler http.Handler, kube *rest.Config, log logr.Logger) (*gate, error) {
	kube = rest.CopyConfig(kube)
	kube.Timeout = reviewTimeout
	client, err := rest.HTTPClientFor(kube)
	if err != nil {
		return nil, err
	}
	authentication, err := authenticationv1.NewForConfigAndClient(kube, client)
	if err != nil {
		return nil, err
	}
	authorization, err := authorizationv1.NewForConfigAndClient(kube, client)
	if err != nil {
		return nil, err
	}
	retry := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	metrics := webhooktoken.AuthenticatorMetrics{RecordRequestTotal: authenticatorfactory.RecordRequestTotal, RecordRequestLatency: authenticatorfactory.RecordRequestLatency}
	tokens, err := webhooktoken.NewFromInterface(authentication, nil, retry, reviewTimeout, metrics)
	if err != nil {
		return nil, err
	}
	rights, err := authorizerfactory.DelegatingAuthorizerConfig{SubjectAccessReviewClient: authorization, AllowCacheTTL: reviewLife, DenyCacheTTL: reviewLife, WebhookRetryBackoff: &retry}.New()
	if err != nil {
		return nil, err
	}
	return &gate{handler, cache.New(tokens, false, reviewLife, reviewLife), rights, newSources(time.Now), make(chan struct{}, maxRequests), log}, nil
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	console.Protect(w.Header())
	person, err := g.authenticate(r)
	var ctx context.Context
	if err == nil {
		select {
		case g.requests <- struct{}{}:
			defer func() { <-g.requests }()
			ctx, err = g.admit(r, person)
		default:
			err = &denial{http.StatusServiceUnavailable, "too many requests at a time: try again in a second"}
		}
	}
	var denied *denial
	switch {
	case errors.As(err, &denied):
		switch denied.code {
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "1")
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", `Basic realm="Butler IPAM: any user name, and a token of the cluster as password", charset="UTF-8"`)
			w.Header().Add("WWW-Authenticate", "Bearer")
		}
		http.Error(w, denied.text, denied.code)
	case err != nil:
		g.log.Error(err, "Reviewing a request")
		http.Error(w, "the API server cannot review the request now: try again", http.StatusServiceUnavailable)
	default:
		if reader := readerOf(ctx); r.URL.Query().Has(namespaceValue) {
			http.SetCookie(w, &http.Cookie{Name: namespaceValue, Value: reader.namespace, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode})
		}
		g.handler.ServeHTTP(w, r.WithContext(ctx))
	}
}

// denial is the reason why the gate does not serve a request.
type denial struct {
	code int
	text string
}

func (d *denial) Error() string { return d.text }

// admit returns a context with the reader of a request. The error is a denial or an error
// of the API server.
func (g *gate) admit(r *http.Request, person user.Info) (context.Context, error) {
	ctx := r.Context()
	switch may, err := g.may(ctx, authorizer.AttributesRecord{User: person, Verb: "get", Path: gatePath}); {
	case err != nil:
		return nil, err
	case !may:
		return nil, &denial{http.StatusForbidden, fmt.Sprintf("%s has no right to get %s: bind the ClusterRole of the console's users to this user or one of its groups", person.GetName(), gatePath)}
	}
	namespace, err := namespaceOf(r)
	if err != nil {
		return nil, err
	}
	reader, err := g.newReader(ctx, person, namespace)
	return context.WithValue(ctx, readerKey{}, reader), err
}

// tokenOf returns the token of a request; "" if the request has no token.
func tokenOf(r *http.Request) string {
	if _, password, basic := r.BasicAuth(); basic {
		return password
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// authenticate returns the user of the token of a request. If the API server does not
// accept the token, or is not asked, the error is a denial.
func (g *gate) authenticate(r *http.Request) (user.Info, error) {
	unknown := &denial{http.StatusUnauthorized, "a valid token of the cluster is needed: as bearer token, or as the password of any user name"}
	token := tokenOf(r)
	if token == "" {
		return nil, unknown
	}
	decision, done := g.sources.begin(r, token)
	switch decision {
	case deny:
		return nil, unknown
	case postpone:
		return nil, &denial{http.StatusTooManyRequests, "too many unknown tokens from this address: try again in a second"}
	}
	response, known, err := g.tokens.AuthenticateToken(r.Context(), token)
	done(known, isFailure(err))
	switch {
	case known:
		return response.User, nil
	case isFailure(err):
		return nil, fmt.Errorf("review of a token: %w", err)
	}
	return nil, unknown // the API server's reason in err is only for the administrator of the cluster
}

// isFailure reports whether an error means that the API server has not reviewed the
// token.
func isFailure(err error) bool {
	var connection *url.Error
	return errors.As(err, &connection) || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || wait.Interrupted(err)
}

// may reports whether a person has a right.
func (g *gate) may(ctx context.Context, a authorizer.AttributesRecord) (bool, error) {
	decision, _, err := g.rights.Authorize(ctx, a)
	if err != nil {
		return false, fmt.Errorf("review of a right of %s: %w", a.User.GetName(), err)
	}
	return decision == authorizer.DecisionAllow, nil
}

// namespaceOf returns the namespace that a person has chosen, in the query of the request
// or in the cookie of an earlier request; "" without a choice.
func namespaceOf(r *http.Request) (string, error) {
	namespace := ""
	if query := r.URL.Query(); query.Has(namespaceValue) {
		namespace = strings.TrimSpace(query.Get(namespaceValue))
	} else if cookie, err := r.Cookie(namespaceValue); err == nil {
		namespace = cookie.Value
	}
	if problems := validation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
		return "", &denial{http.StatusBadRequest, fmt.Sprintf("%s=%.100q: %s", namespaceValue, namespace, problems[0])}
	}
	return namespace, nil
}

// reader is the scope of the person who sent a request.
type reader struct {
	scope     cluster.Scope
	namespace string
	limited   bool // the person may not list some resource of pools or claims in all namespaces
}

type readerKey struct{}

// readerOf returns the reader of a request.
func readerOf(ctx context.Context) reader {
	r, _ := ctx.Value(readerKey{}).(reader) // the zero reader may list nothing
	if r.scope == nil {
		r.scope = cluster.Scope{}
	}
	return r
}

// newReader requests reviews of the right to list each resource: in all namespaces, else
// in the namespace that the person has chosen.
func (g *gate) newReader(ctx context.Context, person user.Info, namespace string) (reader, error) {
	r := reader{scope: cluster.Scope{}, namespace: namespace}
	for _, of := range cluster.Resources() {
		a := authorizer.AttributesRecord{User: person, Verb: "list", APIGroup: of.Group, APIVersion: of.Version, Resource: of.Resource, ResourceRequest: true}
		switch may, err := g.may(ctx, a); {
		case err != nil:
			return r, err
		case may:
			r.scope[of.Name] = cluster.AllNamespaces
			continue
		case of.ClusterScoped:
			continue
		}
		r.limited = r.limited || slices.Contains(inventory.Resources, of.Name)
		if a.Namespace = namespace; namespace == "" {
			continue
		}
		switch may, err := g.may(ctx, a); {
		case err != nil:
			return r, err
		case may:
			r.scope[of.Name] = namespace
		}
	}
	return r, nil
}
