package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseTenant(t *testing.T) {
	for text, want := range map[string]struct{ ranges, fail string }{
		"nodes=5,loadbalancer=8":                {ranges: "[{nodes 5} {loadbalancer 8}]"},
		"loadbalancer=8":                        {ranges: "[{loadbalancer 8}]"},
		"":                                      {ranges: "[]"},
		"nodes=5,nodes=6":                       {fail: "names nodes twice"},
		"nodes=5,loadbalancer=1,loadbalancer=1": {fail: "names loadbalancer twice"},
		"nodes=0":                               {fail: `"nodes=0" is neither`},
		"cats=1":                                {fail: `"cats=1" is neither`},
	} {
		ranges, err := parseTenant(text)
		if want.fail != "" {
			if err == nil || !strings.Contains(err.Error(), want.fail) || !strings.HasPrefix(err.Error(), "--tenant="+text) {
				t.Errorf("%q: error %v, want %q", text, err, want.fail)
			}
		} else if err != nil || fmt.Sprint(ranges) != want.ranges {
			t.Errorf("%q: %v, %v, want %s", text, ranges, err, want.ranges)
		}
	}
}
