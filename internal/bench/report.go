package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// find returns a contestant's result in a course.
func (r *Report) find(course, contestant string) Result {
	for _, result := range r.Results {
		if result.Course == course && result.Contestant == contestant {
			return result
		}
	}
	return Result{}
}

// ratios computes the figures that count.
func (r *Report) ratios() []Ratio {
	f, i, s := r.find("1.3 KB", floor), r.find("1.3 KB", inbox), r.find("1.3 KB", single)
	f20, i20, p20 := r.find("20 KB", floor), r.find("20 KB", inbox), r.find("20 KB", prototype)
	f1, i1 := r.find("1.3 KB alone", floor), r.find("1.3 KB alone", inbox)
	return []Ratio{
		{"durable accepts / floor, 1.3 KB", i.Rate / f.Rate, 0.45, false},
		{"durable accepts / one commit per request, 1.3 KB", i.Rate / s.Rate, 4, false},
		{"CPU per accepted event / floor's, 1.3 KB", i.CPU / f.CPU, 2.2, true},
		{"durable accepts / floor, 20 KB", i20.Rate / f20.Rate, 0.45, false},
		{"durable accepts / bare group commit, 20 KB (instead of the one above)", i20.Rate / p20.Rate, 0.8, false},
		{"p50 alone / (fdatasync + floor's p50)", i1.P50 / (r.SyncMS + f1.P50), 2, true},
		{"seconds of traffic pending at the end, 1.3 KB", float64(i.Pending) / i.Rate, 1, true},
	}
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d CPUs; %s\n", r.Go, r.CPUs, r.Protocol)
	fmt.Fprintf(w, "one 4 KiB append + fdatasync here: %.3f ms (median of 1,000)\n\n", r.SyncMS)
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "course\tcontestant\t2xx/s\tp50 ms\tp99 ms\tp99.9 ms\tCPU us\tRSS MiB\tper commit\tflushes/commit\tpending\tnon-2xx\t")
	for _, x := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.1f\t%.2f\t%d\t%d\t\n", x.Course, x.Contestant, x.Rate, x.P50, x.P99, x.P999,
			x.CPU, x.RSS, x.PerCommit, x.Flushes, x.Pending, x.Non2xx)
	}
	t.Flush()
	for _, x := range r.Results {
		if x.Journal != "" {
			fmt.Fprintf(w, "\ndurability as read back from the store: %s\n", x.Journal)
			break
		}
	}
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, x := range r.Ratios {
		word, verdict := "at least", "met"
		if x.AtMost {
			word = "at most"
		}
		if !x.Met() {
			verdict = "NOT MET"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%s %.2f\t%s\n", x.Name, x.Value, word, x.Bar, verdict)
	}
	t.Flush()
}
