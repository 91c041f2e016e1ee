//go:build race

package state

// modelDivisor divides the number of schedules that the model check runs by default: the
// race detector makes a schedule 25 times as long, and the tests without the race
// detector run all schedules.
const modelDivisor = 5
