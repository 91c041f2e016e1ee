package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"butlerlabs.dev/ipam/test/sandbox"
)

// etcd is the storage of a sandbox, reached around the API server through etcd's own JSON gateway.
type etcd struct {
	url    string
	client http.Client
}

func newEtcd(s *sandbox.Sandbox) (*etcd, error) {
	pki := filepath.Join(s.Dir(), "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(pki, "etcd.crt"), filepath.Join(pki, "etcd.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	e := &etcd{url: "https://" + s.EtcdAddress() + "/v3/kv/"}
	e.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	return e, nil
}

// call has etcd do something (see its rpc.proto) and reads what it says.
func (e *etcd) call(ctx context.Context, what string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s: %.200s", response.Status, what, text)
	}
	return json.Unmarshal(text, answer)
}

// entry is a key and its value. As JSON they are base64.
type entry struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// revision counts the writes to etcd.
type revision struct {
	Header struct {
		Revision int64 `json:"revision,string"`
	} `json:"header"`
}

// put stores up to 128 entries in one transaction.
func (e *etcd) put(ctx context.Context, entries []entry) error {
	type operation struct {
		Put entry `json:"requestPut"`
	}
	var transaction struct {
		Success []operation `json:"success"`
	}
	for _, entry := range entries {
		transaction.Success = append(transaction.Success, operation{entry})
	}
	return e.call(ctx, "txn", transaction, &revision{})
}

// get reads the value of one key.
func (e *etcd) get(ctx context.Context, key string) ([]byte, error) {
	var answer struct {
		Entries []entry `json:"kvs"`
	}
	if err := e.call(ctx, "range", entry{Key: []byte(key)}, &answer); err != nil {
		return nil, err
	}
	if len(answer.Entries) != 1 {
		return nil, fmt.Errorf("etcd has no %s", key)
	}
	return answer.Entries[0].Value, nil
}

// changed counts the keys that begin so and were written after a revision, and gives the present one.
func (e *etcd) changed(ctx context.Context, prefix string, since int64) (n int, now int64, err error) {
	var answer struct {
		revision
		Entries []json.RawMessage `json:"kvs"`
	}
	end := []byte(prefix)
	end[len(end)-1]++
	err = e.call(ctx, "range", map[string]any{"key": []byte(prefix), "range_end": end, "keys_only": true, "min_mod_revision": since + 1}, &answer)
	return len(answer.Entries), answer.Header.Revision, err
}
