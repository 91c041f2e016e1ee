// Package backoff tests how often the managers write what the API server refuses: their calls are counted in its audit log.
package backoff
