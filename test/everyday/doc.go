// Package everyday tests what people and their tools do every day: delete pools together with their claims, and correct a claim that was not served.
package everyday
