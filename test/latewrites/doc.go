// Package latewrites tests what becomes of creates that etcd stores after the API server has given them up: where the grant's life is over
// by then, another claim may have the range. Nobody can prevent that; the late one is adopted where its range is free, flagged where it
// is not, and two are never Ready on one address.
package latewrites
