// Package replicas tests several managers behind one Service: each answers, and the death of any of them shows as latency. The
// etcd and the API server are real, and stay well but in one test: that they may not is for the chaos suite.
package replicas
