// Package latewrites tests what becomes of creates that etcd stores after the API server has given them up: where the grant's life is over
// by then, another claim may have the range. Nobody can prevent that; the late one is adopted where its range is free, flagged where it
// is not, and two are never Ready on one address.
//
// It also tests what becomes of the objects that hold addresses for claims where they are stored, or shown, when their claim is gone already.
package latewrites
