// Package gateway is the daemon as a value: configuration in, two listeners,
// a worker, forwarders and housekeeping out. It is what `ichido serve` runs,
// and what the demo and the benchmark run too.
//
// It knows no concrete store, no flags and no files but those that the
// configuration names.
package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"ichido.dev/ichido"
	"ichido.dev/ichido/internal/config"
)

// Store is what the gateway needs of a store.
type Store interface {
	ichido.Queue
	ichido.Archive

	// Failed is closed when the store can never store again in this process
	// (its disk failed); Err then says why. The gateway stops.
	Failed() <-chan struct{}
	Err() error
}

// Options are what a gateway is made from.
type Options struct {
	// Config is the configuration to start with; its problems are returned
	// by New.
	Config *config.File

	// Reload, when set, reads the configuration again; see Gateway.Reload.
	Reload func() (*config.File, error)

	Store Store

	// Attach, when set, may change each source before its inbox is made: a
	// program that embeds the gateway handles events itself this way.
	Attach func(*ichido.Source)

	// Getenv resolves env: references; os.LookupEnv by default.
	Getenv func(string) (string, bool)

	// HTTPClient fetches key sets; by default one for each source that only
	// reaches public addresses, and the host of its URL if that is an address.
	HTTPClient *http.Client

	Log *slog.Logger
}

// Gateway is a configured daemon. Make it with New, then Run it once.
type Gateway struct {
	opts      Options
	log       *slog.Logger
	archive   ichido.Archive
	stock     *stocktaker
	registry  *prometheus.Registry
	observer  *observer
	admission *ichido.Admission
	current   atomic.Pointer[snapshot]
	accepting atomic.Bool
	reloading sync.Mutex
	drainFor  time.Duration // how long forwards may go on when it ends; 0 for the worker's own

	ingest, admin net.Listener
}

// snapshot is one configuration in force: a request sees one of them from its
// start to its end.
type snapshot struct {
	file        *config.File
	router      *router
	inboxes     []*ichido.Inbox
	endpoints   []*endpoint
	adminTokens [][sha256.Size]byte
	worked      bool // there are sources whose events this process works
}

// New checks the configuration and opens both listeners.
func New(o Options) (*Gateway, error) {
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	limits := o.Config.Limits
	g := &Gateway{
		opts:     o,
		log:      o.Log,
		archive:  o.Store,
		stock:    &stocktaker{archive: o.Store},
		registry: registry,
		observer: newObserver(o.Log, registry),
		admission: &ichido.Admission{
			Small: int64(limits.SmallBodies), Large: int64(limits.LargeBodies), Allow: limiter(limits.UnverifiedRate),
		},
	}
	registry.MustRegister(newStock(g.stock, g.admission))
	s, err := g.snapshot(o.Config)
	if err != nil {
		return nil, err
	}
	if err := g.own(s); err != nil {
		return nil, err
	}
	g.current.Store(s)
	g.warn(o.Config)
	if g.ingest, err = listen(o.Config.Listen, limits.Connections); err != nil {
		return nil, fmt.Errorf("listen for deliveries: %w", err)
	}
	if g.admin, err = listen(o.Config.Admin.Listen, adminConnections); err != nil {
		g.ingest.Close()
		return nil, fmt.Errorf("listen for the admin: %w", err)
	}
	return g, nil
}

const adminConnections = 256

// IngestAddr returns the address that deliveries are received on.
func (g *Gateway) IngestAddr() string { return g.ingest.Addr().String() }

// AdminAddr returns the address of the admin listener.
func (g *Gateway) AdminAddr() string { return g.admin.Addr().String() }

// Sources returns the names and paths of the sources, in their order.
func (g *Gateway) Sources() (names, paths []string) {
	for _, e := range g.current.Load().endpoints {
		names, paths = append(names, e.name), append(paths, e.route)
	}
	return names, paths
}

// ServeHTTP serves deliveries by the configuration in force. Of the paths of
// health only a probe is answered: a sender that has one for its URL must not
// take it for an endpoint.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	probe := (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0
	switch p := r.URL.EscapedPath(); {
	case probe && p == "/livez":
		g.live(w, r)
	case probe && p == "/readyz":
		g.ready(w, r)
	default:
		g.current.Load().router.ServeHTTP(w, r)
	}
}

// Run serves until ctx ends or the store fails. Then it first says that it is
// not ready, finishes the requests in flight, drains the worker, and returns:
// nil after ctx ended, or why it could not go on.
func (g *Gateway) Run(ctx context.Context) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	admin, stopAdmin := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAdmin()

	failures := make(chan error, 3)
	run := func(group *sync.WaitGroup, what string, f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				failures <- fmt.Errorf("%s: %w", what, err)
			}
			stopServing()
		})
	}
	var front, back, admins sync.WaitGroup
	run(&front, "serve deliveries", func() error { return serve(serving, newServer(g), g.ingest) })
	run(&back, "work events", func() error { return g.worker().Run(work) })
	run(&admins, "serve the admin", func() error { return serve(admin, newServer(g.adminHandler()), g.admin) })
	back.Go(func() { g.housekeep(work) })
	g.accepting.Store(true)

	var failed error
	select {
	case <-serving.Done():
	case <-g.opts.Store.Failed():
		failed = fmt.Errorf("the store failed; restart to recover what is stored: %w", g.opts.Store.Err())
	}
	g.accepting.Store(false)
	g.admission.Drain()
	stopServing()
	front.Wait()
	stopWork()
	back.Wait()
	stopAdmin()
	admins.Wait()
	g.stock.end()
	close(failures)
	for err := range failures {
		failed = errors.Join(failed, err)
	}
	return failed
}

// worker returns the worker over the inboxes in force.
func (g *Gateway) worker() *ichido.Worker {
	w := ichido.NewWorker(g.opts.Store)
	w.Inboxes = func() []*ichido.Inbox { return g.current.Load().inboxes }
	w.DrainFor = g.drainFor
	w.Log = g.log
	return w
}

// Reload reads the configuration again and swaps it in as a whole. A
// configuration with a problem changes nothing. What cannot change while the
// process runs (listeners, store, limits) is named in the log, each time until
// it is again as it was at the start.
func (g *Gateway) Reload() error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if g.opts.Reload == nil {
		return errors.New("reload configuration: there is no file")
	}
	file, err := g.opts.Reload()
	if err != nil {
		return err
	}
	s, err := g.snapshot(file)
	if err != nil {
		return err
	}
	if err := g.own(s); err != nil {
		return err
	}
	for _, name := range fixedDifferences(&g.opts.Config.Config, &file.Config) {
		g.log.Warn("this setting changes only with a restart", "setting", name)
	}
	g.current.Store(s)
	g.warn(file)
	g.log.Info("configuration reloaded", "sources", len(s.inboxes))
	g.warnOfOrphans(context.Background())
	return nil
}

// fixedDifferences returns the names of the settings that differ and that
// cannot change while the process runs.
func fixedDifferences(a, b *config.Config) []string {
	var names []string
	for _, s := range []struct {
		name string
		same bool
	}{
		{"listen", a.Listen == b.Listen},
		{"admin.listen", a.Admin.Listen == b.Admin.Listen},
		{"store", a.Store == b.Store},
		{"limits.connections", a.Limits.Connections == b.Limits.Connections},
		{"limits.small_bodies", a.Limits.SmallBodies == b.Limits.SmallBodies},
		{"limits.large_bodies", a.Limits.LargeBodies == b.Limits.LargeBodies},
		{"limits.unverified_rate", a.Limits.UnverifiedRate == b.Limits.UnverifiedRate},
		{"limits.events", a.Limits.Events == b.Limits.Events},
		{"limits.free_disk", a.Limits.FreeDisk == b.Limits.FreeDisk},
	} {
		if !s.same {
			names = append(names, s.name)
		}
	}
	return names
}

// snapshot builds every source of a configuration, or reports every problem.
func (g *Gateway) snapshot(file *config.File) (*snapshot, error) {
	endpoints := build(file, &g.opts, SecretsHere)
	s := &snapshot{file: file, endpoints: endpoints, adminTokens: parseTokens(file.Admin.Tokens)}
	for i, e := range endpoints {
		src := e.source
		src.Admission = g.admission
		src.Observe = g.observer.of(src.Name)
		src.Log = g.log
		if g.opts.Attach != nil && !e.broken {
			g.opts.Attach(&src)
		}
		e.open(file, i, g.opts.Store, src)
		if e.inbox != nil {
			s.inboxes = append(s.inboxes, e.inbox)
			s.worked = s.worked || src.Handler != nil || src.Inline != nil || src.Apply != nil
		}
	}
	if err := file.Problems(); err != nil {
		return nil, err
	}
	s.router = newRouter(endpoints, g.admission)
	s.inboxes = slices.Clip(s.inboxes)
	return s, nil
}
