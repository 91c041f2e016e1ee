// Package sandbox runs Butler IPAM as a cluster would, on one machine: etcd, kube-apiserver and any number of managers as
// processes of their own on loopback, over TLS, with the RBAC, CRDs and webhook configurations of config/. Nothing in it is a
// stand-in, so what holds here holds in front of a real API server.
//
//	kubectl ──▶ kube-apiserver ──▶ front ──▶ manager-1        each manager ──▶ kube-apiserver ──▶ etcd
//	                                  └────▶ manager-2
//
// The front takes the place of the webhook Service: it hands out whole connections, turn by turn, to the managers that serve, moves bytes
// only and repeats nothing. A manager is an endpoint from when its /readyz first answers until its process is gone, or was asked to end a
// second ago, but for the times when a readiness probe fails, as config/manager has it made: a frozen one gets no new connections
// after three seconds, and keeps those it has.
//
// The API server calls it by a Service, so that it does as in a cluster: over HTTP/1.1, and over connections of its own for each webhook.
//
// With Options.Links each manager reaches the API server by a link of its own, and its peers reach it by another: links can be cut, in one
// direction or both, and slowed down (see Link).
//
// Processes can be killed, ended, frozen and started again one by one; they keep their arguments, ports and log file. All of them end with
// the process that started them, however that one ends (on Linux).
//
// What a sandbox writes lies in its directory: kubeconfig, pids/, logs/, pki/, managers/, the etcd data, and the file ready while
// everything serves. One sandbox at a time may use a directory; a second one is refused.
//
// A Sandbox and its processes may be used from any number of goroutines.
package sandbox
