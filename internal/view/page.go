package view

import (
	"context"

	"ichido.dev/ichido"
)

// Lister finds stored events, newest first: an [ichido.Archive].
type Lister interface {
	List(ctx context.Context, f ichido.Filter) ([]ichido.Record, error)
}

// List is one page of events, newest first.
type List struct {
	Events []Event `json:"events"`
	// Before is what to ask for next; 0 when this page was the last one.
	Before int64 `json:"before,omitempty"`
}

// pageSize is how many events a page has unless the filter says otherwise, and
// batchSize how many are read at a time where all are.
const (
	pageSize  = 50
	batchSize = 1000
)

// Page returns the page of events that f selects. It asks for one more than it
// shows, to know whether there is another page.
func Page(ctx context.Context, l Lister, f ichido.Filter) (List, error) {
	size := f.Limit
	if size == 0 {
		size = pageSize
	}
	f.Limit = size + 1
	records, err := l.List(ctx, f)
	if err != nil {
		return List{}, err
	}
	page := List{}
	if len(records) > size {
		records = records[:size]
		page.Before = records[size-1].Seq
	}
	page.Events = make([]Event, len(records))
	for i := range records {
		page.Events[i] = OfRecord(&records[i])
	}
	return page, nil
}

// Each calls visit with every record that f selects, newest first, page by
// page; with at most f.Limit of them where that is set.
func Each(ctx context.Context, l Lister, f ichido.Filter, visit func(*ichido.Record)) error {
	left := f.Limit
	for {
		f.Limit = batchSize
		if left > 0 {
			f.Limit = min(left, batchSize)
		}
		records, err := l.List(ctx, f)
		if err != nil {
			return err
		}
		for i := range records {
			visit(&records[i])
		}
		if len(records) < f.Limit || len(records) == left {
			return nil
		}
		f.Before = records[len(records)-1].Seq
		if left > 0 {
			left -= len(records)
		}
	}
}
