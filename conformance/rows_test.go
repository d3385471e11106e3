package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// row is one requirement of a document. Its name starts with the row's
// number and then says the behaviour.
type row struct {
	name string
	test func(t *testing.T)
}

// run runs every row as a subtest of its own.
func run(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.name, r.test)
	}
}

// document is a list of rows, and how many there must be.
type document struct {
	letter string
	count  int
	rows   []row
}

// problems says which rows are missing, there twice, unknown, or without a
// behaviour in their name.
func (d document) problems() (found []string) {
	times := map[string]int{}
	for _, r := range d.rows {
		number, behaviour, _ := strings.Cut(r.name, " ")
		times[number]++
		if r.test == nil || len(behaviour) < 10 {
			found = append(found, number+" has no test or no behaviour")
		}
	}
	for i := range d.count {
		number := fmt.Sprint(d.letter, i+1)
		if times[number] != 1 {
			found = append(found, fmt.Sprintf("%s is there %d times", number, times[number]))
		}
		delete(times, number)
	}
	for number := range times {
		found = append(found, number+" is no row of the document")
	}
	return found
}

func TestEveryRowHasItsTest(t *testing.T) {
	for _, d := range []document{{"A", 11, geminiRows()}, {"B", 17, frameworkRows()}, {"C", 10, ledgerRows()}} {
		for _, problem := range d.problems() {
			t.Error(problem)
		}
	}
}

func TestAMissingRowIsNoticed(t *testing.T) {
	good := ledgerRows()
	for name, rows := range map[string][]row{
		"missing":           good[1:],
		"twice":             append(slices.Clone(good), good[0]),
		"unknown":           append(slices.Clone(good), row{"C11 a row that nobody wrote", good[0].test}),
		"without test":      append(slices.Clone(good[1:]), row{good[0].name, nil}),
		"without behaviour": append(slices.Clone(good[1:]), row{"C1", good[0].test}),
	} {
		if (document{"C", 10, rows}).problems() == nil {
			t.Errorf("a row that is %s goes unnoticed", name)
		}
	}
}
