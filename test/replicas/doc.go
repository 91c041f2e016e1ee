// Package replicas tests several managers behind one Service. Every replica responds to
// creates, and the loss of a replica causes latency, not errors. etcd and the API server
// are real and stay available, except in one test; faults of etcd and of the API server
// are the subject of the chaos test (test/chaos).
package replicas
