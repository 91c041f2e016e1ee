// Package object reads and completes metadata that objects of all kinds have in common:
// resource versions, applied fields, validation errors, labels, finalizers.
//
// No function does I/O. AddLabels and AddFinalizer change their object; the other
// functions change no argument.
package object
