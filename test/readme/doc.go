// Package readme executes the Markdown documents of the repository. It runs every
// command, applies every YAML file, and compares every output that a document shows.
//
//	```yaml       a file; its first line is a comment with the file's name, and a later command must use the file
//	```sh         commands, one per line, which must succeed
//	```console    commands after "$ ", each followed by its output
//	```text       a picture, which is not executed
//
// Commands run in a directory that looks like a checkout, against a sandbox. `make
// sandbox` starts another sandbox with the given variables; commands that begin with helm
// run against an API server without managers, where the chart can be installed. Output is
// compared line by line: "…" in a line stands for any text, a line "…" for any lines, and
// several spaces equal one. A command that shows no output must succeed. A command whose
// output has a line that begins with "Error" or "error", or contains " is invalid: ",
// must fail.
//
// The variable elsewhere lists commands that a sandbox cannot execute, each with the
// reason and with the place that executes the command instead.
package readme
