// Command values generates the schema and the documentation of a chart's values. It reads
// values.yaml, and writes values.schema.json and the tables of values between two marks
// in README.md.
//
//	values CHART
//
// The comment above a value is its description; a value without comment is an error. The
// default of a value determines its type. Further constraints of the schema are in the
// last line of the comment:
//
//	# Where the image lies, registry included.
//	# @schema {minLength: 1}
//	repository: butler-ipam
//
// A mapping permits only the keys that it has, unless its @schema line describes
// additional keys. A comment line "@group NAME" begins a new table with this heading.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// schema is a JSON schema, or a part of one.
type schema map[string]any

// row is a value in the table. If group is set, the value begins a table.
type row struct{ path, standard, description, group string }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: values CHART")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "values:", err)
		os.Exit(1)
	}
}

func run(chart string) error {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	root, rows, err := mapping("", document.Content[0])
	if err != nil {
		return err
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["properties"].(schema)["global"] = schema{"type": "object"} // Helm gives it to a chart that others depend on
	return errors.Join(writeSchema(filepath.Join(chart, "values.schema.json"), root), writeTable(filepath.Join(chart, "README.md"), rows))
}

// mapping is the schema of a mapping that has its keys and no others.
func mapping(path string, node *yaml.Node) (schema, []row, error) {
	properties := schema{}
	var rows []row
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		s, more, err := property(strings.TrimPrefix(path+"."+key.Value, "."), key.HeadComment, value)
		if err != nil {
			return nil, nil, err
		}
		properties[key.Value] = s
		rows = append(rows, more...)
	}
	return schema{"type": "object", "additionalProperties": false, "properties": properties}, rows, nil
}

func property(path, comment string, node *yaml.Node) (schema, []row, error) {
	comment, group := groupOf(comment)
	description, extra, err := parse(comment)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, open := extra["additionalProperties"]; node.Kind == yaml.MappingNode && !open {
		s, rows, err := mapping(path, node)
		if group != "" && len(rows) > 0 {
			rows[0].group = group
		}
		return s, rows, err
	}
	if description == "" {
		return nil, nil, fmt.Errorf("%s has no comment", path)
	}
	var standard any
	if err := node.Decode(&standard); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	s := schema{"type": typeOf(node), "description": description, "default": standard}
	for keyword, value := range extra {
		s[keyword] = value
	}
	text, err := json.Marshal(standard)
	return s, []row{{path, string(text), description, group}}, err
}

var groupLine = regexp.MustCompile(`(?m)^# @group (.+)\n?`)

// groupOf returns a comment without its line "@group", and the name of the group; ""
// without such a line.
func groupOf(comment string) (rest, group string) {
	if m := groupLine.FindStringSubmatch(comment); m != nil {
		group = m[1]
	}
	return strings.TrimRight(groupLine.ReplaceAllString(comment, ""), "\n"), group
}

// parse divides a comment into the description, on one line, and what it adds to the
// schema.
func parse(comment string) (description string, extra schema, err error) {
	var words []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "#"))
		if rest, found := strings.CutPrefix(line, "@schema "); found {
			err = yaml.Unmarshal([]byte(rest), &extra)
		} else {
			words = append(words, line)
		}
	}
	return strings.Join(words, " "), extra, err
}

func typeOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "object"
	case yaml.SequenceNode:
		return "array"
	}
	switch node.Tag {
	case "!!bool":
		return "boolean"
	case "!!int":
		return "integer"
	case "!!float":
		return "number"
	}
	return "string"
}

func writeSchema(path string, root schema) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(root); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

var table = regexp.MustCompile(`(?s)<!-- values -->\n.*<!-- end of values -->\n`)

func writeTable(path string, rows []row) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !table.Match(text) {
		return fmt.Errorf("%s has no place for the table: a line <!-- values --> and a line <!-- end of values -->", path)
	}
	var out strings.Builder
	out.WriteString("<!-- values -->\n")
	for _, r := range rows {
		if r.group != "" {
			fmt.Fprintf(&out, "\n### %s\n\n| Value | Default | Description |\n| --- | --- | --- |\n", r.group)
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", r.path, r.standard, strings.ReplaceAll(r.description, "|", `\|`))
	}
	out.WriteString("\n<!-- end of values -->\n")
	return os.WriteFile(path, table.ReplaceAllLiteral(text, []byte(out.String())), 0o644)
}
