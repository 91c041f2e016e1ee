package webhooks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Tenants is the webhooks of what tenants get their addresses by. A ProviderConfig that names none is in defaultNamespace for its tenants.
func Tenants(defaultNamespace string) API {
	return func(o Options, hooks map[string]hook) {
		p := &providerConfigs{live: o.Live, defaultNamespace: defaultNamespace}
		s := subject{kind: v1alpha1.GroupVersion.WithKind("ProviderConfig")}
		for verb, answer := range map[string]func(context.Context, *admission.Request) (admission.Response, error){
			verbValidate: p.validate, verbValidateDelete: p.validateDelete,
		} {
			hooks[path(verb, s.kind)] = hook{verb + "-providerconfig", s, answer}
		}
	}
}

// providerConfigs validates ProviderConfigs, by the rules that our CRD states too: where Butler itself is installed the CRD is another one.
type providerConfigs struct {
	live             client.Reader
	defaultNamespace string
}

func (p *providerConfigs) validate(_ context.Context, req *admission.Request) (admission.Response, error) {
	if !stores(req) {
		return admission.Allowed(""), nil
	}
	config := &v1alpha1.ProviderConfig{}
	if err := decode(req.Object.Raw, config, "providerconfig"); err != nil || config.DeletionTimestamp != nil {
		return admission.Allowed(""), err
	}
	if req.Operation == admissionv1.Update {
		old := &v1alpha1.ProviderConfig{}
		if err := decode(req.OldObject.Raw, old, "providerconfig"); err != nil || equality.Semantic.DeepEqual(old.Spec, config.Spec) {
			return admission.Allowed(""), err
		}
	}
	if faults := providerFaults(config.Spec); len(faults) > 0 {
		return admission.Response{}, invalid(faults)
	}
	return admission.Allowed("").WithWarnings(foreignPools(req.Object.Raw, p.defaultNamespace)...), nil
}

// providerFaults is what is wrong with a ProviderConfig in itself.
func providerFaults(s v1alpha1.ProviderConfigSpec) (faults field.ErrorList) {
	spec := field.NewPath("spec")
	required := func(at *field.Path, is bool, why string) {
		if !is {
			faults = append(faults, field.Required(at, why))
		}
	}
	cloud := true
	switch s.Provider {
	case "azure":
		required(spec.Child("azure"), s.Azure != nil && s.Azure.SubscriptionID != "" && s.Azure.ResourceGroup != "", "provider azure needs spec.azure with subscriptionID and resourceGroup")
	case "aws":
		required(spec.Child("aws"), s.AWS != nil && s.AWS.Region != "", "provider aws needs spec.aws with region")
	case "gcp":
		required(spec.Child("gcp"), s.GCP != nil && s.GCP.ProjectID != "" && s.GCP.Region != "", "provider gcp needs spec.gcp with projectID and region")
	default:
		cloud = false
	}
	if s.Scope != nil && s.Scope.Type == v1alpha1.ScopeTeam {
		required(spec.Child("scope", "teamRef"), s.Scope.TeamRef != nil && s.Scope.TeamRef.Name != "", "scope team needs teamRef, the team that may use the provider")
	}
	if n := s.Network; n != nil && n.Mode == v1alpha1.NetworkModeIPAM {
		required(spec.Child("network", "poolRefs"), len(n.PoolRefs) > 0, "mode ipam needs at least one NetworkPool in poolRefs")
		if cloud {
			faults = append(faults, field.Forbidden(spec.Child("network"), "mode ipam is not for the providers azure, aws and gcp, whose clouds manage the addresses: use mode cloud"))
		}
	}
	return faults
}

// validateDelete denies the deletion of what a TenantCluster names that stays, except in a terminating namespace. What cannot be read denies nothing.
func (p *providerConfigs) validateDelete(ctx context.Context, req *admission.Request) (admission.Response, error) {
	if req.Operation != admissionv1.Delete {
		return admission.Allowed(""), nil
	}
	config := &v1alpha1.ProviderConfig{}
	if err := decode(req.OldObject.Raw, config, "providerconfig"); err != nil || config.DeletionTimestamp != nil {
		return admission.Allowed(""), err
	}
	all := &v1alpha1.TenantClusterList{}
	if err := p.live.List(ctx, all); err != nil {
		return untold(err)
	}
	var users []string
	for i := range all.Items {
		ref := all.Items[i].Spec.ProviderConfigRef
		if ref == nil || ref.Name != config.Name || all.Items[i].DeletionTimestamp != nil { // the release of a tenant's addresses needs no provider
			continue
		}
		if namespace := ref.Namespace; namespace == req.Namespace || namespace == "" && p.defaultNamespace == req.Namespace {
			users = append(users, all.Items[i].Namespace+"/"+all.Items[i].Name)
		}
	}
	if len(users) == 0 {
		return admission.Allowed(""), nil
	}
	switch going, err := terminating(ctx, p.live, req.Namespace); {
	case err != nil:
		return untold(err)
	case going:
		return admission.Allowed(""), nil
	}
	count := len(users)
	if count > maxNamed {
		users = append(users[:maxNamed], fmt.Sprintf("%d more", count-maxNamed))
	}
	return admission.Response{}, &providerInUse{config.Name, strings.Join(users, ", ")}
}

func untold(err error) (admission.Response, error) {
	if errors.Is(err, errTooManyReads) {
		return admission.Response{}, err
	}
	return admission.Allowed("").WithWarnings("whether TenantClusters need this ProviderConfig could not be told: " + err.Error()), nil
}

// providerInUse is a ProviderConfig that cannot be deleted.
type providerInUse struct{ name, users string }

func (e *providerInUse) Error() string {
	return fmt.Sprintf("ProviderConfig %s cannot be deleted while TenantClusters get their addresses by it (%s): delete them, or have them name another one", e.name, e.users)
}
