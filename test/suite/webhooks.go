package suite

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CreateDenyingPolicy creates a ValidatingAdmissionPolicy with this name that denies all
// matching requests with the message "refused by a policy". The API server enforces the
// policy once it has compiled the policy, shortly after CreateDenyingPolicy returns.
func CreateDenyingPolicy(t *testing.T, c client.Client, name string, match admissionregistrationv1.MatchResources) (binding client.Object) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	bound := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	CreateForTest(t, c, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: &match,
		Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "refused by a policy"}},
	}}, bound)
	return bound
}

// DenyingWebhook starts a webhook that calls first and then denies every request with
// this status code.
func DenyingWebhook(t *testing.T, code int32, first func(context.Context)) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	return RespondingWebhook(t, func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		first(ctx)
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: code, Message: "refused after a while"}}
	})
}

// RespondingWebhook starts a webhook that responds with the result of answer.
func RespondingWebhook(t *testing.T, answer func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(r.Context(), review.Request)
		review.Response.UID = review.Request.UID
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return admissionregistrationv1.WebhookClientConfig{
		URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

// RegisterWebhook registers a validating webhook for the operations, limited to requests
// for which condition, a CEL expression, is true. The API server begins to call the
// webhook shortly after RegisterWebhook returns.
func RegisterWebhook(
	t *testing.T, c client.Client, name string, webhook admissionregistrationv1.WebhookClientConfig, condition string, operations []admissionregistrationv1.NamedRuleWithOperations,
) (hook client.Object) {
	t.Helper()
	hook = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name:                    "others.example.com",
		ClientConfig:            webhook,
		Rules:                   rulesWithoutNames(operations),
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: condition}},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}}}
	CreateForTest(t, c, hook)
	return hook
}

// RegisterMutatingWebhook is RegisterWebhook for a mutating webhook, which the API server
// calls after the webhooks of the allocator.
func RegisterMutatingWebhook(
	t *testing.T, c client.Client, name string, webhook admissionregistrationv1.WebhookClientConfig, condition string, operations []admissionregistrationv1.NamedRuleWithOperations,
) {
	t.Helper()
	CreateForTest(t, c, &admissionregistrationv1.MutatingWebhookConfiguration{ // called in the order of names
		ObjectMeta: metav1.ObjectMeta{Name: "zzz-" + name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "others.example.com",
			ClientConfig:            webhook,
			Rules:                   rulesWithoutNames(operations),
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: condition}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	})
}

func rulesWithoutNames(operations []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	rules := make([]admissionregistrationv1.RuleWithOperations, len(operations))
	for i := range operations {
		rules[i] = operations[i].RuleWithOperations
	}
	return rules
}

// RulesFor returns rules for the operations on one resource of these API groups, in all
// versions.
func RulesFor(operations []admissionregistrationv1.OperationType, resource string, groups ...string) []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{resource}},
	}}}
}

// RemoveRules removes the CEL rules from a CRD. The API server enforces them until it has
// observed the change.
func RemoveRules(t *testing.T, c client.Client, name string) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Change(t, c, crd, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			forgetRules(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	})
}

func forgetRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, p := range s.Properties {
		forgetRules(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		forgetRules(s.Items.Schema)
	}
}
