package claims

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// A claim owns its address in the routing domain in which the address was granted.
// Neither of these changes that: its pool is made anew in another routing domain, without
// the finalizer that keeps it; other clients write labels and annotations while the
// webhooks are not installed; a new leader starts.
func TestDomain_OwnersKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s"}})
	const address = "10.219.0.5"
	all := map[string]*theft{}
	for _, k := range suite.Kinds {
		s := newTheft(t, c, k)
		all[k.Name] = s
		suite.Create(t, c, s.pool, s.victimsPool)
		k.Gets(t, c, s.claim, address)
		k.Gets(t, c, s.victim, address)
	}
	each := func(step string, test func(t *testing.T, k suite.Kind, s *theft)) {
		for _, k := range suite.Kinds {
			t.Run(step+"/"+k.Name, func(t *testing.T) { test(t, k, all[k.Name]) })
		}
	}
	keep := func(t *testing.T, k suite.Kind, s *theft) {
		t.Helper()
		for _, o := range []client.Object{s.claim, s.victim} {
			k.Binds(t, c, o, address)
		}
		suite.AwaitObject(t, c, s.claim, func(o client.Object) string {
			if got := o.GetAnnotations()[butlerv1.AnnotationGrantedDomain]; got != s.domain {
				return fmt.Sprintf("routing domain %q is recorded, want %q", got, s.domain)
			}
			return ""
		})
	}

	mal := all["IPClaim"].domain
	labelled := fmt.Sprintf("{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: %s, name: labelled, labels: {%s: wrong}}, spec: {pool: {name: pool}}}", mal, butlerv1.LabelRoutingDomain)
	if _, warnings, err := box.Kubectl(t.Context(), labelled, "create", "-f", "-"); err != nil || !strings.Contains(warnings, `is "wrong", and has no effect`) || !strings.Contains(warnings, mal) {
		t.Errorf("a wrong label: %v, %q", err, warnings)
	}
	each("the pool is deleted with its finalizer taken off", func(t *testing.T, k suite.Kind, s *theft) {
		for _, o := range []client.Object{s.pool, s.claim} { // an invented Helm release lets the deletion of the pool through
			suite.Change(t, c, o, func(o client.Object) {
				setAnnotation(o, "meta.helm.sh/release-name", "invented")
				setAnnotation(o, "meta.helm.sh/release-namespace", "mal")
			})
		}
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, s.pool)) }) // as soon as the marks are observed
		suite.Change(t, c, s.pool, func(o client.Object) { o.SetFinalizers(nil) })
		suite.AwaitGone(t, c, s.pool)
		keep(t, k, s)
	})
	restart(t, box)
	each("the pool is made anew where the address has an owner", func(t *testing.T, k suite.Kind, s *theft) {
		keep(t, k, s)
		suite.RequireDenied(t, c.Create(t.Context(), s.poolIn(s.victims)), 403, fmt.Sprintf("cannot be in routing domain %q", s.victims), address, "is owned by "+k.Resource+"/"+s.claim.GetName(),
			fmt.Sprintf("in routing domain %q", s.domain), "give the pool another name")
	})
	removeWebhooks(t, c)
	each("without webhooks", func(t *testing.T, k suite.Kind, s *theft) {
		suite.Create(t, c, s.poolIn(s.victims))
		suite.Change(t, c, s.claim, func(o client.Object) {
			setAnnotation(o, butlerv1.AnnotationGrantedDomain, s.victims)
			o.SetLabels(map[string]string{butlerv1.LabelRoutingDomain: s.victims})
		})
		keep(t, k, s)
	})
	restart(t, box)
	each("after a restart", keep)
	if err := box.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}
	each("with webhooks", func(t *testing.T, k suite.Kind, s *theft) {
		suite.RequireDenied(t, suite.TryChange(t, c, s.claim, func(o client.Object) { setAnnotation(o, butlerv1.AnnotationGrantedDomain, s.victims) }), 422,
			"metadata.annotations["+butlerv1.AnnotationGrantedDomain+"]", s.victims, "cannot be changed", s.domain)
		suite.Change(t, c, s.claim, func(o client.Object) { // an update that omits the record gets it back
			annotations := o.GetAnnotations()
			delete(annotations, butlerv1.AnnotationGrantedDomain)
			o.SetAnnotations(annotations)
		})
		keep(t, k, s)
		// In the routing domain of the claim the address is not free for others.
		other := newTheft(t, c, k)
		suite.Create(t, c, other.poolIn(s.domain))
		suite.RequireDenied(t, c.Create(t.Context(), other.claim), 403, address+" is owned")
		keep(t, k, s)
	})
}

// The address of a claim is changed while the webhooks are not installed, to an address
// that its pool never offered. The claim does not stay Ready, and gets its address back
// when the change is undone.
func TestAltered_ClaimGetsItsAddressBack(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true, ManagerArgs: []string{"--shutdown-delay=0s"}})
	const address, outside = "10.219.0.5", "10.99.0.5"
	var kinds []suite.Kind
	for _, k := range suite.Kinds {
		if k.Resource != "ipallocations" { // a rule of the CRD, which holds without webhooks too, denies the change
			kinds = append(kinds, k)
		}
	}
	type pair struct{ running, stopped client.Object } // changed while the manager runs, and while it does not
	all := map[string]pair{}
	for i, k := range kinds {
		ns := suite.CreateNamespace(t, c)
		p := pair{k.Claim(ns, fmt.Sprintf("running-%d", i), address), k.Claim(ns, fmt.Sprintf("stopped-%d", i), "10.219.0.6")}
		suite.Create(t, c, k.Pool(ns, "10.219.0.1", "10.219.0.9"))
		k.Gets(t, c, p.running, address)
		k.Gets(t, c, p.stopped, "10.219.0.6")
		all[k.Name] = p
	}
	removeWebhooks(t, c)
	for _, k := range kinds {
		suite.Change(t, c, all[k.Name].running, func(o client.Object) { k.Request(o, outside) })
		fails(t, c, k, all[k.Name].running, outside)
	}
	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		suite.Change(t, c, all[k.Name].stopped, func(o client.Object) { k.Request(o, "10.99.0.6") })
	}
	if err := errors.Join(manager.Start(), manager.Ready(t.Context()), box.InstallWebhooks(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		t.Run(k.Name, func(t *testing.T) {
			p := all[k.Name]
			for o, was := range map[client.Object]string{p.running: address, p.stopped: "10.219.0.6"} {
				fails(t, c, k, o, k.Address(o))
				if err := suite.TryChange(t, c, o, func(o client.Object) { k.Request(o, was) }); err != nil {
					t.Fatalf("the address that the claim had is denied: %v", err)
				}
				k.Binds(t, c, o, was)
			}
		})
	}
}

// fails waits until the status of a claim reports that its pool does not offer the
// address. The status still names the address object of an IPClaim.
func fails(t *testing.T, c client.Client, k suite.Kind, claim client.Object, address string) {
	t.Helper()
	suite.AwaitObject(t, c, claim, func(o client.Object) string {
		if text := k.Failure(o); !strings.Contains(text, address+" is outside the pool") {
			return fmt.Sprintf("failure %q", text)
		}
		return ""
	})
}

// theft is a claim whose author tries to get the address of another claim, the victim, in
// another routing domain.
type theft struct {
	domain, victims   string // routing domains of the claim and of the victim
	pool, victimsPool client.Object
	claim, victim     client.Object
}

func newTheft(t *testing.T, c client.Client, k suite.Kind) *theft {
	t.Helper()
	mal, vict := suite.CreateNamespace(t, c), suite.CreateNamespace(t, c)
	s := &theft{
		domain: mal, victims: vict, pool: k.Pool(mal, "10.219.0.1", "10.219.0.9"), victimsPool: k.Pool(vict, "10.219.0.1", "10.219.0.9"),
		claim: k.Claim(mal, mal+"-c", "10.219.0.5"), victim: k.Claim(vict, vict+"-web", "10.219.0.5"),
	}
	return s
}

// poolIn returns the pool of the claim in a routing domain.
func (s *theft) poolIn(domain string) client.Object {
	o := s.pool.DeepCopyObject().(client.Object)
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	if p, is := o.(*butlerv1.NetworkPool); is {
		p.Spec.RoutingDomain = domain
		return p
	}
	o.SetLabels(map[string]string{butlerv1.LabelRoutingDomain: domain})
	return o
}

func setAnnotation(o client.Object, key, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}

// restart ends the manager and starts it again: a new leader computes the owners from the
// stored objects.
func restart(t *testing.T, box *sandbox.Sandbox) {
	t.Helper()
	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// removeWebhooks deletes the webhook configurations, and returns when the API server
// calls no webhook.
func removeWebhooks(t *testing.T, c client.Client) {
	t.Helper()
	suite.Delete(t, c, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-butler-ipam"}})
	suite.Delete(t, c, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}})
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		probe := suite.Kinds[0].Pool("default", "10.0.0.1", "10.0.0.2")
		probe.SetName("probe")
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil || len(probe.GetFinalizers()) > 0 {
			return fmt.Errorf("a webhook still answers, finalizers %v: %w", probe.GetFinalizers(), err)
		}
		return nil
	})
}
