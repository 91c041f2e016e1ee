package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// describeLeftOut returns at most two warnings: about resources that were read in only
// one namespace, and about resources that were not read. leftOut maps a resource to the
// namespace; to "" for a resource that was not read. complete reports whether a
// namespaced resource was read in all namespaces. user is the user in the text; "" for
// the reader of the text.
func describeLeftOut(user string, leftOut map[string]string, complete bool) (list []string) {
	var some, none []string
	namespace, claims := "", false
	for _, of := range resources {
		switch in, partly := leftOut[of.name]; {
		case partly && in == "":
			none = append(none, of.Resource)
		case partly:
			some = append(some, of.Resource)
			namespace, claims = in, claims || !of.pools
		}
	}
	slices.Sort(some)
	slices.Sort(none)
	user = cmp.Or(user, "you")
	if len(some) > 0 {
		consequence := "pools of other namespaces are not shown"
		if claims {
			consequence = "objects of other namespaces are not shown, and addresses of their claims are shown as free"
		}
		what := ""
		if complete {
			what = strings.Join(slices.Compact(some), ", ") + " of "
		}
		list = append(list, fmt.Sprintf("%s may list only %snamespace %s: %s", user, what, namespace, consequence))
	}
	if len(none) > 0 {
		list = append(list, fmt.Sprintf("not read, as %s may not list them: %s", user, strings.Join(slices.Compact(none), ", ")))
	}
	return list
}
