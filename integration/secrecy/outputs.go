package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // to read what is stored
)

// destination receives forwards, refuses some, and keeps all it got.
type destination struct {
	base string
	mu   sync.Mutex
	got  place
}

func startDestination() (*destination, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the destination: %w", err)
	}
	d := &destination{base: "http://" + l.Addr().String(), got: place{name: "forwards"}}
	s := &http.Server{Handler: d, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }() // until the program ends
	return d, nil
}

// ServeHTTP keeps a forward. Every tenth is refused, so that there are causes
// and dead letters too.
func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var text strings.Builder
	_ = r.Header.Write(&text) // to memory
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	text.Write(body)
	d.mu.Lock()
	d.got.add([]byte(text.String()))
	n := len(d.got.texts)
	d.mu.Unlock()
	if n%10 == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// ask reads one page of the admin listener.
func ask(address, path, adminToken string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the admin listener: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask the admin listener for %s: it answered %d", path, res.StatusCode)
	}
	return text, err
}

// adminReplies reads every event through the admin API, a page at a time, and
// some of them one by one.
func adminReplies(address, adminToken string) (*place, error) {
	p := &place{name: "admin replies"}
	for next := "/v1/events?limit=1000"; ; {
		text, err := ask(address, next, adminToken)
		if err != nil {
			return nil, err
		}
		p.add(text)
		var page struct {
			Events []struct {
				ID string `json:"id"`
			} `json:"events"`
			Before int64 `json:"before"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("read a page of events: %w", err)
		}
		for i := 0; i < len(page.Events); i += 20 {
			one, err := ask(address, "/v1/events/"+page.Events[i].ID, adminToken)
			if err != nil {
				return nil, err
			}
			p.add(one)
		}
		if page.Before == 0 { // it was the last one
			return p, nil
		}
		next = fmt.Sprintf("/v1/events?limit=1000&before=%d", page.Before)
	}
}

// stored reads every column of every table: what is text, and what is a BLOB.
func stored(path string) (texts, blobs *place, err error) {
	texts, blobs = &place{name: "stored text"}, &place{name: "stored BLOBs"}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, nil, fmt.Errorf("read what is stored: %w", err)
	}
	defer db.Close()
	rows, err := db.Query(`SELECT name FROM sqlite_schema WHERE type = 'table'`)
	if err != nil {
		return nil, nil, fmt.Errorf("read what is stored: %w", err)
	}
	var tables []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, nil, fmt.Errorf("read what is stored: %w", err)
		}
		tables = append(tables, name)
	}
	if err := rows.Close(); err != nil {
		return nil, nil, fmt.Errorf("read what is stored: %w", err)
	}
	for _, table := range tables {
		if err := columns(db, table, texts, blobs); err != nil {
			return nil, nil, fmt.Errorf("read what is stored in %s: %w", table, err)
		}
	}
	return texts, blobs, nil
}

func columns(db *sql.DB, table string, texts, blobs *place) error {
	rows, err := db.Query(`SELECT * FROM "` + table + `"`)
	if err != nil {
		return err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, dest := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for _, value := range values {
			switch v := value.(type) {
			case string:
				texts.add([]byte(v))
			case []byte:
				blobs.add(append([]byte(nil), v...))
			}
		}
	}
	return rows.Err()
}

// commands runs the commands that show events and configurations.
func commands(binary, config string) (*place, error) {
	p := &place{name: "commands"}
	for _, args := range [][]string{
		{"check", "--config", config},
		{"check", "--json", "--config", config},
		{"events", "--json", "--limit", "1000", "--config", config},
		{"events", "--limit", "1000", "--config", config},
		{"dead", "--json", "--config", config},
	} {
		cmd := exec.Command(binary, args...)
		cmd.Dir = filepath.Dir(config)
		text, err := cmd.CombinedOutput()
		if err != nil && len(text) == 0 {
			return nil, fmt.Errorf("run %v: %w", args, err)
		}
		p.add(text)
	}
	return p, nil
}

// files reads files as they are on the disk.
func files(name string, paths ...string) (*place, error) {
	p := &place{name: name}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		p.add(text)
	}
	return p, nil
}
