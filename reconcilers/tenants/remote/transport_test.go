package remote

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBoundedBody_RejectsOversizedAnswersAndEvents(t *testing.T) {
	manyValues := `{"items":[{"spec":{"ports":[{}` + strings.Repeat(",{}", maxDecodedBytes/256) + `]}}]}`
	manyObjects := `{"items":[0` + strings.Repeat(",0", maxDecodedBytes/256) + `]}`
	commas := `{"metadata":{"annotations":{"a":"\"` + strings.Repeat(",", 256<<10) + `"}}}`
	longText := `"` + strings.Repeat("x", maxAnswerBytes) + `"`
	for name, c := range map[string]struct {
		body    string
		perLine bool
		fits    bool
	}{
		"object with many values":      {manyValues, false, false},
		"event with many values":       {manyValues + "\n", true, false},
		"list of many objects":         {manyObjects, false, false},
		"text with commas":             {commas, false, true},
		"event whose text has commas":  {commas + "\n", true, true},
		"long text":                    {longText, false, false},
		"long event":                   {longText + "\n", true, false},
		"many small events":            {strings.Repeat(commas+"\n", 40), true, true},
		"the same bytes in one answer": {strings.Repeat(commas+"\n", 40), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var reported error
			b := &boundedBody{
				ReadCloser: io.NopCloser(iotest.OneByteReader(strings.NewReader(c.body))), perLine: c.perLine,
				onOversized: func(err error) { reported = err },
			}
			read, err := io.ReadAll(b)
			switch {
			case c.fits && (err != nil || string(read) != c.body || reported != nil):
				t.Errorf("read %d bytes of %d, error %v, reported %v", len(read), len(c.body), err, reported)
			case !c.fits && (!errors.Is(err, errOversized) || !errors.Is(reported, errOversized)):
				t.Errorf("error %v, reported %v, want %v", err, reported, errOversized)
			}
		})
	}
}
