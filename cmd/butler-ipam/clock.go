//go:build !chaos

package main

import "time"

// now is the manager's clock.
var now = time.Now
