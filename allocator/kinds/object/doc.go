// Package object reads and completes metadata that objects of all kinds have in common:
// resource versions, applied fields, validation errors, labels, finalizers. It has the
// types in which every kind describes its objects.
//
// No function does I/O. AddLabels and AddFinalizer change their object; the other
// functions change no argument.
package object
