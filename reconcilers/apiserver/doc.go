// Package apiserver is the manager's side of the API server: connections that detect a
// dead peer within seconds, the wait at startup until the API server is ready, and an
// estimate of the API server's clock.
package apiserver
