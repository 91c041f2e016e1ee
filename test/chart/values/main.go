// Command values reads a chart's values.yaml, and writes from it values.schema.json and, between two marks, the table of values in README.md.
//
//	values CHART
//
// A value's comment is its description; one without is an error. Its default says its type, and what else its schema needs stands in a last
// line of the comment:
//
//	# Where the image lies, registry included.
//	# @schema {minLength: 1}
//	repository: butler-ipam
//
// A mapping takes the keys it has and no others, unless its line says what additional ones are like.
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

// row is a value in the table.
type row struct{ path, standard, description string }

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
	description, extra, err := parse(comment)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, open := extra["additionalProperties"]; node.Kind == yaml.MappingNode && !open {
		return mapping(path, node)
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
	return s, []row{{path, string(text), description}}, err
}

// parse divides a comment into the description, on one line, and what it adds to the schema.
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
	out.WriteString("<!-- values -->\n| value | default | what |\n| --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", r.path, r.standard, strings.ReplaceAll(r.description, "|", `\|`))
	}
	out.WriteString("<!-- end of values -->\n")
	return os.WriteFile(path, table.ReplaceAllLiteral(text, []byte(out.String())), 0o644)
}
