package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/test/sandbox"
)

// idleWebhooks let everything pass, one of them after it has written a Lease. They are
// called as the allocator's own are: under the same conditions, over TLS and HTTP/1.1,
// through a front, in a process of their own; and they read what they are sent.
type idleWebhooks struct {
	server *idleServer
	front  *sandbox.Front
}

func (b *bench) startIdleWebhooks(ctx context.Context) (*idleWebhooks, error) {
	server, err := startIdleServer(b.sandbox.WebhookCertDir(), b.sandbox.Kubeconfig())
	if err != nil {
		return nil, err
	}
	front, err := sandbox.NewFront()
	if err != nil {
		return nil, errors.Join(err, server.stop())
	}
	front.Add("idle", server.address, func() bool { return true })
	w := &idleWebhooks{server: server, front: front}
	for _, s := range []subject{hookedCR, committedCR, hookedClaim} {
		if err := b.installIdle(ctx, w, s); err != nil {
			return nil, errors.Join(fmt.Errorf("webhooks of %s: %w", s.name, err), w.stop())
		}
	}
	return w, nil
}

// idleCalls is how often they were called so far.
func (b *bench) idleCalls() (int, error) {
	if b.idle == nil {
		return 0, nil
	}
	return b.idle.server.calls()
}

func (w *idleWebhooks) stop() error { return errors.Join(w.front.Stop(), w.server.stop()) }

// installIdle copies the first mutating and the first validating webhook of the
// allocator, which are those for IPAllocations, for a subject. It returns when both are
// called.
func (b *bench) installIdle(ctx context.Context, w *idleWebhooks, s subject) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := errors.Join(
		b.setup.Get(ctx, types.NamespacedName{Name: "zz-butler-ipam"}, mutating),
		b.setup.Get(ctx, types.NamespacedName{Name: "butler-ipam"}, validating))
	if err != nil {
		return err
	}
	port := netip.MustParseAddrPort(w.front.Address()).Port()
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		config := mutating.Webhooks[0].ClientConfig.DeepCopy()
		config.Service.Path, config.Service.Port = &path, ptr.To(int32(port))
		return *config
	}
	name := "idle." + s.resource + "." + s.group()
	fail := ptr.To(admissionregistrationv1.Fail)
	first, second := mutating.Webhooks[0], validating.Webhooks[0]
	first.Name, second.Name = name, name
	first.ClientConfig, first.FailurePolicy = at(s.idle), fail
	second.ClientConfig, second.FailurePolicy = at("/validate"), fail
	for _, rule := range []*admissionregistrationv1.RuleWithOperations{&first.Rules[0], &second.Rules[0]} {
		rule.APIGroups, rule.APIVersions, rule.Resources = []string{s.group()}, []string{s.version()}, []string{s.resource}
	}
	meta := metav1.ObjectMeta{Name: name}
	err = errors.Join(
		b.setup.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{first},
		}),
		b.setup.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{second},
		}))
	if err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error {
		before, err := w.server.calls()
		if err != nil {
			return err
		}
		if err := b.tryCreate(ctx, s); err != nil {
			return err
		}
		if after, err := w.server.calls(); err != nil || after-before < 2 {
			return errors.Join(errors.New("the API server does not call both yet"), err)
		}
		return nil
	})
}
