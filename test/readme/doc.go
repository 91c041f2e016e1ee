// Package readme does what README.md says, word for word.
package readme
