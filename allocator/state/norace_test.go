//go:build !race

package state

// modelDivisor divides the number of schedules that the model check runs by default.
const modelDivisor = 1
