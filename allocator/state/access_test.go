package state

import (
	"errors"
	"maps"
	"slices"
	"testing"
)

// What the journal lists of a resource with version 7.
func TestAccess_Listed(t *testing.T) {
	denied := func(a *access) {
		for at := modelStart; !a.hasExpired(modelClaims); at = at.Add(maxUnobserved) {
			a.deny(at, modelClaims, errors.New("forbidden"))
		}
	}
	for name, tc := range map[string]struct {
		do       []func(*access)
		grants   bool
		want     map[string]uint64
		unserved bool
	}{
		"no object":                       {want: map[string]uint64{modelClaims: 0}},
		"grants only":                     {grants: true, want: map[string]uint64{modelClaims: 7}},
		"objects":                         {do: []func(*access){stored}, want: map[string]uint64{modelClaims: 7}},
		"object that is gone":             {do: []func(*access){stored, gone}, want: map[string]uint64{modelClaims: 0}},
		"denied for a grant life":         {do: []func(*access){stored, denied}, want: map[string]uint64{modelClaims: 0}},
		"switched off, with objects":      {do: []func(*access){stored, off}, want: map[string]uint64{modelClaims: 7}, unserved: true},
		"switched off, without an object": {do: []func(*access){off}, want: map[string]uint64{}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccess([]string{modelClaims}, &Limits{GrantLife: DefaultGrantLife})
			a.recordApplied(modelClaims, 7)
			a.recordApplied(modelClaims, 5)
			for _, do := range tc.do {
				do(&a)
			}
			versions, unserved := a.listed(map[string]bool{modelClaims: tc.grants})
			if !maps.Equal(versions, tc.want) || slices.Contains(unserved, modelClaims) != tc.unserved {
				t.Errorf("listed: %v, switched off: %v", versions, unserved)
			}
		})
	}
}

func stored(a *access) { a.objectStored(modelClaims) }
func gone(a *access)   { a.objectGone(modelClaims) }
func off(a *access)    { a.switchOff(modelClaims) }
