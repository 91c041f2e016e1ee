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
	"butlerlabs.dev/ipam/webhooks/review"
)

// Tenants adds the webhooks of ProviderConfigs. A TenantCluster that names a
// ProviderConfig without a namespace means the ProviderConfig in defaultNamespace.
func Tenants(defaultNamespace string) API {
	return func(o Options, hooks map[string]review.Hook) {
		p := &providerConfigs{live: o.Live, defaultNamespace: defaultNamespace}
		s := review.Subject{Kind: v1alpha1.GroupVersion.WithKind("ProviderConfig")}
		for verb, f := range map[string]review.HookFunc{
			verbValidate: p.validate, verbValidateDelete: p.validateDelete,
		} {
			hooks[webhookPath(verb, s.Kind)] = review.Hook{Name: verb + "-providerconfig", Subject: s, Func: f}
		}
	}
}

// providerConfigs validates ProviderConfigs by the rules of the CRD of this repository: a
// cluster with Butler has the CRD of Butler instead.
type providerConfigs struct {
	live             client.Reader
	defaultNamespace string
}

func (p *providerConfigs) validate(_ context.Context, req *admission.Request) (admission.Response, error) {
	if !storesObject(req) {
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
	if faults := findProviderFaults(config.Spec); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	return admission.Allowed("").WithWarnings(warnForeignPools(req.Object.Raw, p.defaultNamespace)...), nil
}

// findProviderFaults returns the faults of a ProviderConfig that need no other object.
func findProviderFaults(s v1alpha1.ProviderConfigSpec) (faults field.ErrorList) {
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

// validateDelete denies the deletion of a ProviderConfig that a staying TenantCluster
// names, except in a terminating namespace. If TenantClusters or the namespace cannot be
// read, the deletion is allowed.
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
		return allowUnread(err)
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
	switch going, err := isTerminating(ctx, p.live, req.Namespace); {
	case err != nil:
		return allowUnread(err)
	case going:
		return admission.Allowed(""), nil
	}
	count := len(users)
	if count > maxNamed {
		users = append(users[:maxNamed], fmt.Sprintf("%d more", count-maxNamed))
	}
	return admission.Response{}, &providerInUse{config.Name, strings.Join(users, ", ")}
}

func allowUnread(err error) (admission.Response, error) {
	if errors.Is(err, errTooManyReads) {
		return admission.Response{}, err
	}
	return admission.Allowed("").WithWarnings("finding the TenantClusters of this ProviderConfig failed: " + err.Error()), nil
}

// providerInUse denies the deletion of a ProviderConfig with TenantClusters.
type providerInUse struct{ name, users string }

func (e *providerInUse) Error() string {
	return fmt.Sprintf("ProviderConfig %s cannot be deleted while TenantClusters name the ProviderConfig (%s): delete these TenantClusters, or change their providerConfigRef", e.name, e.users)
}

// Unwrap makes the error a review.ErrInUse.
func (e *providerInUse) Unwrap() error { return review.ErrInUse }
