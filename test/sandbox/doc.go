// Package sandbox runs a complete control plane with Butler IPAM on one machine. etcd,
// kube-apiserver and any number of managers are processes on loopback. The connections
// use TLS, and the objects of config/ are installed: RBAC, CRDs and webhook
// configurations. No component is simulated, so results of the sandbox are valid for a
// real API server.
//
//	kubectl ──▶ kube-apiserver ──▶ front ──▶ manager-1        each manager ──▶ kube-apiserver ──▶ etcd
//	                                  └────▶ manager-2
//
// The front replaces the network path behind the webhook Service. It distributes whole
// TCP connections in turn to the managers that are endpoints, copies bytes only, and
// never retries. A manager is an endpoint
//
//   - from the first success of its /readyz
//   - until its process has ended, or until 1 s after its termination was requested
//   - except while its readiness probe fails; period and thresholds of the probe are
//     those of config/manager.
//
// So a frozen manager gets no new connections after three seconds, and keeps its existing
// connections.
//
// The webhook configurations name a Service, as in a cluster. So the API server calls
// webhooks over HTTP/1.1 and uses separate connections for each webhook.
//
// With Options.Links each manager reaches the API server through a Link of its own, and
// is reached by its peers through another Link. A Link can be cut in one direction or in
// both, and slowed down.
//
// Each process can be killed, terminated, frozen and restarted separately, and keeps its
// arguments, ports and log file. On Linux all processes end when the process that started
// the sandbox ends, however that process ends.
//
// All files of a sandbox are in its directory: kubeconfig, pids/, logs/, pki/, managers/,
// the data of etcd, and the file ready, which exists while every component serves. Only
// one sandbox at a time can use a directory: Start fails for a second sandbox.
//
// A Sandbox and its processes are safe for concurrent use.
package sandbox
