package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ours  = terms{host: "webhook.ipam.svc", life: 90 * 24 * time.Hour}
)

// trusts says whether who knows a Secret of some time ago accepts what another shows who
// knows one of another time.
func trusts(bundle, shown map[string][]byte, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle[caName])
	pair, err := tls.X509KeyPair(shown[certName], shown[keyName])
	if err != nil {
		return err
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: ours.host, CurrentTime: now})
	return err
}

// renew takes a turn of a Secret, as a replica does.
func renew(t *testing.T, data map[string][]byte, now time.Time) (next map[string][]byte, turn time.Time) {
	t.Helper()
	k, err := readKeys(data).renewed(now, ours)
	if err != nil {
		t.Fatal(err)
	}
	if next, err = k.data(); err != nil {
		t.Fatal(err)
	}
	return next, k.nextTurn(now, ours)
}

// Replicas and API servers learn of each version later, up to the time for settling; at
// times a person takes the key away, though not again before the next authority has
// settled.
func TestWhoIsBehindTrustsAndIsTrusted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type version struct {
		since time.Time
		data  map[string][]byte
	}
	data, turn := renew(t, nil, begin)
	versions := []version{{begin, data}}
	authorities := map[string]bool{}
	taken := begin
	for now := turn; now.Before(begin.AddDate(3, 0, 0)); now = turn {
		authorities[string(data[caKeyName])] = true
		if now.Sub(taken) > 2*ours.settling() && random.IntN(5) == 0 {
			taken, data = now, maps.Clone(data)
			delete(data, caKeyName)
		}
		next, after := renew(t, data, now)
		turn = now.Add(time.Duration(random.Int64N(int64(after.Sub(now))) + int64(6*time.Hour)))
		if !maps.EqualFunc(next, data, bytes.Equal) {
			versions = append(versions, version{now, next})
		}
		data = next
		for i := range versions {
			v := versions[len(versions)-1-i]
			if err := trusts(v.data, data, now); err != nil {
				t.Fatalf("%s: who knows what was stored at %s does not trust: %v", now, v.since, err)
			}
			if err := trusts(data, v.data, now); err != nil {
				t.Fatalf("%s: who shows what was stored at %s is not trusted: %v", now, v.since, err)
			}
			if now.Sub(v.since) >= ours.settling() {
				break // everybody knows this one
			}
		}
	}
	if len(authorities) < 5 {
		t.Errorf("%d sets of keys in three years: the test shows nothing", len(authorities))
	}
}

func TestWhatIsStoredStaysUntilSomethingIsDue(t *testing.T) {
	data, turn := renew(t, nil, begin)
	for range 20 {
		if again, _ := renew(t, data, turn.Add(-time.Second)); !maps.EqualFunc(again, data, bytes.Equal) {
			t.Fatalf("a second before %s something was renewed", turn)
		}
		data, turn = renew(t, data, turn)
	}
}

// Nobody can be served by what has ended, so nothing waits for anything then.
func TestWhatCannotBeUsedIsMadeAnewAtOnce(t *testing.T) {
	whole, _ := renew(t, nil, begin)
	without := func(key string, value []byte) map[string][]byte {
		data := maps.Clone(whole)
		data[key] = value
		return data
	}
	for name, tc := range map[string]struct {
		data map[string][]byte
		now  time.Time
	}{
		"everything has ended": {whole, begin.AddDate(30, 0, 0)},
		"no certificate":       {without(certName, nil), begin},
		"not a certificate":    {without(certName, []byte("junk")), begin},
		"no authority":         {without(caName, nil), begin},
		"not an authority":     {without(caName, whole[certName]), begin},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := renew(t, tc.data, tc.now)
			if err := trusts(got, got, tc.now); err != nil {
				t.Error(err)
			}
		})
	}
	other := ours
	other.host = "other.ipam.svc"
	k, err := readKeys(whole).renewed(begin, other)
	if err != nil || fmt.Sprint(k.serving.Leaf.DNSNames) != "[other.ipam.svc]" {
		t.Errorf("for another name: %v, %v", k.serving.Leaf.DNSNames, err)
	}
}

func TestAnAuthorityWhoseWorkIsDoneHasNoKey(t *testing.T) {
	data, turn := renew(t, nil, begin)
	for readKeys(data).nextTurn(turn, ours).Before(begin.AddDate(3, 0, 0)) {
		data, turn = renew(t, data, turn)
		signing := 0
		for i, a := range readKeys(data).authorities {
			if a.key != nil {
				signing++
			}
			if i > 1 && a.key != nil {
				t.Fatalf("%s: authority %d still has its key", turn, i)
			}
		}
		if signing == 0 || signing > 2 {
			t.Fatalf("%s: %d authorities can sign", turn, signing)
		}
	}
}
