package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/test/sandbox"
)

// idleWebhooks let everything pass. They are called as the allocator's own are: under the same conditions, over TLS and HTTP/1.1, through
// a front, and they read what they are sent.
type idleWebhooks struct {
	server             *http.Server
	front              *sandbox.Front
	ended              chan error
	mutated, validated atomic.Int64 // calls
}

func (b *bench) startIdleWebhooks(ctx context.Context) (*idleWebhooks, error) {
	dir := b.sandbox.WebhookCertDir()
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, err
	}
	w := &idleWebhooks{ended: make(chan error, 1)}
	if w.front, err = sandbox.NewFront(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	w.front.Add("idle", listener.Addr().String(), func() bool { return true })
	mux := http.NewServeMux()
	mux.Handle("/mutate", pass(&w.mutated))
	mux.Handle("/validate", pass(&w.validated))
	w.server = &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { w.ended <- w.server.Serve(listener) }()
	if err := b.installIdle(ctx, w); err != nil {
		return nil, errors.Join(fmt.Errorf("webhooks that do nothing: %w", err), w.stop())
	}
	return w, nil
}

func (w *idleWebhooks) stop() error {
	err := errors.Join(w.server.Close(), w.front.Stop())
	if ended := <-w.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// pass answers an AdmissionReview with "allowed".
func pass(calls *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		var review struct{ Request struct{ UID types.UID } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	})
}

// installIdle copies the first mutating and the first validating webhook of the allocator, which are those for IPAllocations, for
// hookedCR. It returns when both are called.
func (b *bench) installIdle(ctx context.Context, w *idleWebhooks) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := errors.Join(
		b.setup.Get(ctx, types.NamespacedName{Name: "zz-butler-ipam"}, mutating),
		b.setup.Get(ctx, types.NamespacedName{Name: "butler-ipam"}, validating))
	if err != nil {
		return err
	}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://" + w.front.Address() + path), CABundle: b.sandbox.Config().CAData}
	}
	groups, fail := []string{hookedCR.group()}, ptr.To(admissionregistrationv1.Fail)
	first, second := mutating.Webhooks[0], validating.Webhooks[0]
	first.ClientConfig, first.Rules[0].APIGroups, first.FailurePolicy = at("/mutate"), groups, fail
	second.ClientConfig, second.Rules[0].APIGroups, second.FailurePolicy = at("/validate"), groups, fail
	meta := metav1.ObjectMeta{Name: hookedCR.group()}
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
		if err := b.tryCreate(ctx, hookedCR); err != nil {
			return err
		}
		if w.mutated.Load() == 0 || w.validated.Load() == 0 {
			return errors.New("the API server does not call them yet")
		}
		return nil
	})
}

// calls is how often the webhooks were called so far, both together.
func (w *idleWebhooks) calls() int { return int(w.mutated.Load() + w.validated.Load()) }
