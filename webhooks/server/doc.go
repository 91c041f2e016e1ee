// Package server is the HTTPS server of the webhooks: TLS and client certificates, the
// bound on open connections, the drain at shutdown, the client for calls to other
// replicas (peers), and the health probes.
//
// The server speaks HTTP/1.1 only. Over HTTP/2 the API server would send all calls over
// one connection, and a repeated call would reach the same replica again.
//
//	caller               certificate checked with --webhook-client-ca
//	API server           client certificate signed by that CA
//	another replica      serving certificate with the same DNS name, signed by an authority of this replica
//
// Without --webhook-client-ca the server accepts every client.
package server
