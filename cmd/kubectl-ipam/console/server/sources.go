package server

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// A source may cause sourceBurst reviews of tokens that the gate does not know, and
	// one more each sourceInterval.
	sourceBurst    = 20
	sourceInterval = time.Second
	// maxReviews bounds the concurrent reviews of such tokens, of all sources.
	maxReviews = 16
	// maxSources and maxTokens bound the remembered sources, and the remembered tokens.
	maxSources, maxTokens = 10_000, 10_000
	// denialLife is the time for which a denied token is denied without a review.
	denialLife = 10 * time.Second
	// sourceBits6 is the length of the prefix of a source with IPv6: a host can have all
	// addresses of its network.
	sourceBits6 = 64
)

// sources limits the reviews of tokens that the gate does not know, by the source of the
// request. A token that the API server has accepted is not limited: a person behind a
// proxy has the same source as the others behind it. Sources is safe for concurrent use.
type sources struct {
	now      func() time.Time
	limiters *lru.Cache // netip.Prefix -> *rate.Limiter
	accepted *lru.Cache // tokenHash -> nothing
	denied   *lru.Cache // tokenHash -> time of the denial
	reviews  chan struct{}
	mu       sync.Mutex // makes a lookup and an addition to limiters one step
}

// tokenHash identifies a token: the memory of the process has no token for long.
type tokenHash [sha256.Size]byte

func newSources(now func() time.Time) *sources {
	return &sources{now: now, limiters: lru.New(maxSources), accepted: lru.New(maxTokens), denied: lru.New(maxTokens), reviews: make(chan struct{}, maxReviews)}
}

// admission is the decision about a request before the review of its token.
type admission int

const (
	review   admission = iota // review the token, then call done
	deny                      // the token was denied seconds ago
	postpone                  // too many unknown tokens
)

// begin decides whether the token of a request is reviewed. done records the result of
// the review, and must be called exactly if the token is reviewed.
func (s *sources) begin(r *http.Request, token string) (decision admission, done func(accepted, failed bool)) {
	hash := tokenHash(sha256.Sum256([]byte(token)))
	if _, known := s.accepted.Get(hash); known {
		return review, func(accepted, failed bool) {
			if !accepted && !failed {
				s.accepted.Remove(hash)
				s.denied.Add(hash, s.now())
			}
		}
	}
	if at, known := s.denied.Get(hash); known && s.now().Sub(at.(time.Time)) < denialLife {
		return deny, nil
	}
	if !s.limiter(sourceOf(r)).AllowN(s.now(), 1) {
		return postpone, nil
	}
	select {
	case s.reviews <- struct{}{}:
	default:
		return postpone, nil
	}
	return review, func(accepted, failed bool) {
		<-s.reviews
		switch {
		case accepted:
			s.accepted.Add(hash, nil)
		case !failed:
			s.denied.Add(hash, s.now())
		}
	}
}

// limiter returns the limiter of a source.
func (s *sources) limiter(source netip.Prefix) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.limiters.Get(source); ok {
		return known.(*rate.Limiter)
	}
	l := rate.NewLimiter(rate.Every(sourceInterval), sourceBurst)
	s.limiters.Add(source, l)
	return l
}

// sourceOf returns the network of the sender of a request: an IPv4 address, or a /64 of
// IPv6. Headers such as X-Forwarded-For are ignored: their author may invent them.
func sourceOf(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	length := sourceBits6
	if address = address.Unmap().WithZone(""); address.Is4() {
		length = address.BitLen()
	}
	source, err := address.Prefix(length)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}
