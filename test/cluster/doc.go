// Package cluster tests the manager on a real Kubernetes cluster. The manager runs in
// pods, behind a Service, with certificates from cert-manager.
//
//	make cluster-packages   # once, Debian or Ubuntu: containerd, runc, iptables, conntrack, CNI plugins
//	make test-cluster       # Linux, root: starts a new cluster, runs the tests, stops the cluster
//
// With KEEP=1 the cluster remains after the tests. `make cluster-up` starts a cluster
// without tests; `bin/cluster/kubectl get pods -A` accesses the cluster, and `make
// cluster-down` stops it. Logs remain in bin/cluster/logs. The tests depend on each
// other: a selection must contain the tests that install the manager, as in
// RUN='TestManager/(Chart|First|Rotated)'.
//
// `make test` and CI do not run these tests, because they need root and packages of the
// distribution. Therefore the tests have the build tag cluster, and fail if there is no
// cluster. A machine can run only one cluster at a time.
//
// # Structure
//
// The cluster has one node, in namespaces of its own (see test/cluster/node). etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy and
// kubectl are built from test/controlplane/go.mod, so all have the same version. CoreDNS
// and cert-manager are built from Go modules below this directory. There is no registry
// and no base image: test/tools/image packs each binary into an archive, and containerd
// imports the archives. The manager's archive is written by `make image`. The objects
// installed before the manager are in manifests and platform.sh.
//
// The manager is installed with its chart in a namespace with the pod security standard
// "restricted"; one test installs config/default instead.
//
// The tests also run inside the node's namespaces (go test -exec bin/cluster/in), because
// the node's network has no route to the machine.
//
// # Rights
//
// The API server's audit log records all requests of service accounts. After the other
// tests, the requests of the manager must equal the rights that its roles grant, except
// rights that a run may not need: rights_test.go lists each of these with the reason. The
// API server must not have denied any request of a service account for a missing right.
// The tests on the sandbox use the same roles, and check that no request of their
// managers was denied (CheckLogs).
//
// # Changes on the machine
//
// The tests install nothing: `node check` lists missing packages, and `make
// cluster-packages` installs them. Processes, mounts, links and packet filter rules are
// in namespaces that end with their first process. Outside the namespaces there are only
// the files in bin/cluster, and the cgroup butler-ipam-cluster, which contains all pods
// and limits them to 6 GiB together. `make cluster-down` stops the cluster and removes
// the cgroup. Kernel-wide settings that the kubelet would change are hidden from the
// kubelet.
//
// Tested with cgroups v1, as root in a container with two processors. NetworkPolicies are
// accepted and not enforced.
//
// # Measurements
//
// With two processors that also had other work, two replicas, and 16 clients that create
// without a pause:
//
//	from cluster-up to a working cert-manager, all built      27 to 35 s
//	from helm install to the first allocation                  6 s
//	                                     creates  failed  longest gap
//	pod of the leader deleted                716       0        0.3 s
//	the same without grace period            706       0        0.3 s
//	helm upgrade to other values            2017       0        0.3 s
//	helm rollback                           2239       0        0.7 s
//	scaled to 1, 3 and 2                    3287       0        0.9 s
//	node drained, up to the budget          2815       0        0.8 s
//	CA and certificate renewed              1627       0        0.5 s
//	renewed a second time                   1956       0        0.4 s
//	CA and certificate: Secrets deleted     2037       0        0.3 s
//
// The longest gap is the longest time without a response to a create. The kubelet of this
// cluster checks for changed Secrets every ten seconds, by default once a minute: during
// this time replicas with the old and with the new certificate run side by side.
//
// For up to a second after pods have become ready, kube-proxy may still refuse
// connections to their Service.
package cluster
