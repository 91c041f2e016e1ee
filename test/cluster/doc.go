// Package cluster tests the manager where it is to work: on a real Kubernetes cluster, in pods, behind a Service, with certificates
// from cert-manager.
//
//	make cluster-packages   # once, Debian or Ubuntu: containerd, runc, iptables, conntrack, CNI plugins
//	make test-cluster       # Linux, root: a fresh cluster, the tests, and its end
//
// To look around, KEEP=1 leaves the cluster up, and make cluster-up starts one without tests; bin/cluster/kubectl get pods -A talks to it, and
// make cluster-down ends it. Logs stay in bin/cluster/logs. The tests build on one another, so a part of them needs those that install:
// RUN='TestManager/(Chart|First|Rotated)'.
//
// make test and CI run none of this: it takes root and packages of the distribution. The tests have the build tag cluster for that, and fail
// where there is no cluster. A machine takes one cluster at a time.
//
// # How it is made
//
// The cluster has one node, of namespaces of its own (see node): etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
// kube-proxy and kubectl are built from test/controlplane/go.mod, so all are of one version; CoreDNS and cert-manager from modules of their
// own, here. There is no registry and no base image: test/tools/image packs each binary into an archive, which containerd takes in; the manager's
// is the one that make image writes. What is installed before the manager is in manifests and platform.sh.
//
// The manager comes as its chart, into a namespace under pod security "restricted"; one test takes config/default instead.
//
// The tests run on the node too (go test -exec bin/cluster/in), as its network has no way out, nor in.
//
// # Rights
//
// The API server's audit log holds all that service accounts ask of it. After the other tests what it says of the manager must equal what the
// roles grant, but for rights that a run may not need, each with its reason in rights_test.go; and no service account may have been refused
// anything for want of a right. The suites on the sandbox, under the same roles, see that their managers were refused nothing (WithinRights).
//
// # What it changes on the machine
//
// Nothing is installed unasked: what is missing is named, and make cluster-packages installs it. What runs, mounts, links and filters is in
// namespaces that end with their first process. What is seen outside: files in bin/cluster, and the cgroup butler-ipam-cluster with all
// pods, which may take 6 GiB together. make cluster-down ends the one and removes the other. Settings of the whole kernel that the
// kubelet would change are hidden from it.
//
// Tried with the first version of cgroups, as root in a container with two processors. NetworkPolicies are accepted and not enforced.
//
// # What was seen there
//
// With two processors that had other work as well, two replicas and 16 clients that create without a pause:
//
//	from cluster-up to cert-manager of use, all built         27 to 35 s
//	from helm install to the first allocation                  6 s
//	                                     creates  failed  longest gap
//	pod of the holder deleted                716       0        0.3 s
//	the same without grace                   706       0        0.3 s
//	helm upgrade to other values            2017       0        0.3 s
//	helm rollback                           2239       0        0.7 s
//	scaled to 1, 3 and 2                    3287       0        0.9 s
//	node drained, up to the budget          2815       0        0.8 s
//	CA and certificate renewed              1627       0        0.5 s
//	and again                               1956       0        0.4 s
//	CA and certificate: Secrets deleted     2037       0        0.3 s
//
// The kubelet looks for changed Secrets every ten seconds there, by default once in a minute: replicas with the old and the new certificate are
// beside one another for that long.
//
// For up to a second after pods have become ready kube-proxy may still refuse connections to their Service.
package cluster
