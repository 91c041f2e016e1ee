package tenancy

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAnswersThatAreTooLargeAreNotRead(t *testing.T) {
	objects := `{"items":[{"spec":{"ports":[{}` + strings.Repeat(",{}", tenantMemory/256) + `]}}]}`
	list := `{"items":[0` + strings.Repeat(",0", tenantMemory/256) + `]}`
	text := `{"metadata":{"annotations":{"a":"\"` + strings.Repeat(",", 256<<10) + `"}}}`
	long := `"` + strings.Repeat("x", tenantAnswer) + `"`
	for name, c := range map[string]struct {
		body  string
		lines bool
		fits  bool
	}{
		"an object of many values":              {objects, false, false},
		"an event of many values":               {objects + "\n", true, false},
		"a list of many objects":                {list, false, false},
		"a text with commas":                    {text, false, true},
		"an event with commas in a text":        {text + "\n", true, true},
		"a long text":                           {long, false, false},
		"a long event":                          {long + "\n", true, false},
		"many events, none of which is large":   {strings.Repeat(text+"\n", 40), true, true},
		"an answer of as much is not of events": {strings.Repeat(text+"\n", 40), false, false},
	} {
		var told error
		b := &limitedBody{ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(c.body))), lines: c.lines, over: func(err error) { told = err }}
		read, err := io.ReadAll(b)
		switch {
		case c.fits && (err != nil || string(read) != c.body || told != nil):
			t.Errorf("%s: %d bytes of %d were read, error %v, told %v", name, len(read), len(c.body), err, told)
		case !c.fits && (!errors.Is(err, errTooLarge) || !errors.Is(told, errTooLarge)):
			t.Errorf("%s: error %v, told %v, want %v", name, err, told, errTooLarge)
		}
	}
}
