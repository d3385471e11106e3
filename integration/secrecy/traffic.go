package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// traffic sends deliveries, good and refused, and keeps what came back and
// what must be nowhere.
type traffic struct {
	base      string
	endpoints []endpoint
	client    *http.Client
	next      atomic.Int64

	mu       sync.Mutex
	marked   canaries
	replies  place
	statuses map[int]int
}

// What is wrong with a delivery.
const (
	isGood = iota
	isGoodWithCredentials
	isForged // signed with another secret
	isStale
	isUnsigned
	isCut   // only the beginning of the signature
	isAwry  // the signature of another body
	isLost  // wrong path or path token
	isProbe // wrong method
	isUnreadable
	faults
)

func (t *traffic) send(ctx context.Context, n int, seed uint64) error {
	var senders sync.WaitGroup
	var failed atomic.Pointer[error]
	for i := range 32 {
		senders.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for t.next.Add(1) <= int64(n) && failed.Load() == nil {
				if err := t.one(ctx, rng); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	senders.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// one sends one delivery.
func (t *traffic) one(ctx context.Context, rng *rand.Rand) error {
	e := &t.endpoints[rng.IntN(len(t.endpoints))]
	fault := rng.IntN(faults + 3)
	if fault >= faults {
		fault = isGood
	}
	id := fmt.Sprintf("evt_%016x", rng.Uint64())
	body := fmt.Appendf(nil, `{"id":%q,"event_id":%q,"type":"secrecy.test","operation":{"name":"operations/%s"},"state":"DONE","n":%d}`, id, id, id, rng.Uint64())
	if fault == isUnreadable {
		body = body[:len(body)-1]
	}
	method, path := http.MethodPost, e.path()
	h := http.Header{"Content-Type": {"application/json"}}
	marks := t.fault(rng, e, fault, h, id, body)
	switch fault {
	case isLost:
		wrong := fmt.Sprintf("wrong-%016x", rng.Uint64())
		marks.add("a wrong path token", wrong)
		path += wrong
	case isProbe:
		method = http.MethodPut
	}
	t.mark(marks)
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = h
	res, err := t.client.Do(req)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer res.Body.Close()
	var reply bytes.Buffer
	if err := res.Header.Write(&reply); err != nil {
		return err
	}
	if _, err := io.Copy(&reply, res.Body); err != nil {
		return fmt.Errorf("read reply: %w", err)
	}
	t.keep(res.StatusCode, reply.Bytes())
	return nil
}

// fault fills in the headers of a delivery with what is wrong with it, and
// returns what must be nowhere because of it.
func (t *traffic) fault(rng *rand.Rand, e *endpoint, fault int, h http.Header, id string, body []byte) canaries {
	marks := canaries{}
	now := time.Now()
	if fault == isStale {
		now = now.Add(-time.Hour)
	}
	expected := e.prove(h, e.secret, id, body, now)
	refused := fault >= isForged && fault <= isAwry || fault == isLost || fault == isProbe
	if fault == isStale && !e.timed {
		refused = false
	}
	if refused && expected != nil {
		marks.addBytes("the expected MAC of a refused delivery of "+e.name, expected)
	}
	switch fault {
	case isGoodWithCredentials:
		basic := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "user-%016x:password", rng.Uint64()))
		bearer := fmt.Sprintf("bearer-%016x", rng.Uint64())
		marks.add("a Basic credential", basic)
		marks.add("a proxy's credential", bearer)
		h.Set("Authorization", "Basic "+basic)
		h.Set("Proxy-Authorization", "Bearer "+bearer)
		h.Set("Cookie", "session="+bearer)
	case isForged:
		wrong := fmt.Sprintf("%s%08x", e.secret, rng.Uint32())
		e.prove(h, wrong, id, body, now)
	case isUnsigned:
		clear(h)
		h.Set("Content-Type", "application/json")
	case isCut:
		for name, values := range h {
			if len(values[0]) > 2*chunk && name != "Content-Type" {
				h.Set(name, values[0][:len(values[0])-4])
			}
		}
	case isAwry:
		e.prove(h, e.secret[:len(e.secret)-1], id, append(body, ' '), now)
	}
	return marks
}

func (t *traffic) mark(marks canaries) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for chunk, what := range marks {
		t.marked[chunk] = what
	}
}

func (t *traffic) keep(status int, reply []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[status]++
	t.replies.add(bytes.Clone(reply))
}
